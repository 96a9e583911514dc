package peers;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Kafka's share consumer (KIP-932): a batch goes to a pool, then it is acknowledged. */
public final class Share {
    private static final Duration WAIT = Duration.ofMillis(100);
    private static final long GRACE_NS = 3_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        Trial trial = new Trial(arguments);
        Map<String, Object> client = Map.of("bootstrap.servers", trial.options.get("bootstrap"));
        try (Admin admin = Admin.create(client)) {
            startAtTheBeginning(admin, trial.group);
            consume(trial);
            trial.answer(acknowledged(admin, trial), "kafka-clients");
        }
    }

    private static void startAtTheBeginning(Admin admin, String group) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        var earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        var set = List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, set)).all().get();
    }

    private static void consume(Trial trial) throws InterruptedException {
        Properties settings = trial.consumer();
        for (String key : List.of("auto.offset.reset", "enable.auto.commit", "interceptor.classes")) {
            settings.remove(key);
        }
        settings.put("share.acknowledgement.mode", "explicit");
        ExecutorService pool = Executors.newFixedThreadPool(trial.slots);
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(settings)) {
            consumer.subscribe(List.of(trial.topic));
            while (!trial.isOver()) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(WAIT);
                handle(trial, batch, pool);
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                if (!batch.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
        pool.shutdown();
    }

    private static void handle(
            Trial trial, ConsumerRecords<byte[], byte[]> batch, ExecutorService pool)
            throws InterruptedException {
        long now = System.nanoTime();
        CountDownLatch left = new CountDownLatch(batch.count());
        for (ConsumerRecord<byte[], byte[]> record : batch) {
            if (trial.timed) {
                trial.handedOver(record.value(), now);
            }
            pool.execute(() -> {
                trial.handle(record.value());
                left.countDown();
            });
        }
        left.await();
    }

    /**
     * How many records of each partition the broker counts as acknowledged, after a grace period.
     *
     * <p>A share group's start offset trails behind; its lag does not.
     */
    private static Map<Integer, Long> acknowledged(Admin admin, Trial trial) throws Exception {
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        for (int partition = 0; partition < trial.partitions; partition++) {
            latest.put(new TopicPartition(trial.topic, partition), OffsetSpec.latest());
        }
        var ends = admin.listOffsets(latest).all().get();
        long deadline = System.nanoTime() + GRACE_NS;
        while (true) {
            Map<Integer, Long> found = new HashMap<>();
            List<TopicPartition> behind = new ArrayList<>();
            var group = Map.of(trial.group, new ListShareGroupOffsetsSpec());
            var offsets = admin.listShareGroupOffsets(group).partitionsToOffsetInfo(trial.group);
            var known = offsets.get();
            for (var end : ends.entrySet()) {
                var info = known.get(end.getKey());
                long lag = info == null ? end.getValue().offset() : info.lag().orElse(0L);
                found.put(end.getKey().partition(), end.getValue().offset() - lag);
                if (lag > 0) {
                    behind.add(end.getKey());
                }
            }
            if (behind.isEmpty() || System.nanoTime() > deadline) {
                return found;
            }
            Thread.sleep(100);
        }
    }
}
