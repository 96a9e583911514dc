package peers;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** The plain Java consumer: poll, handle, commit each batch; {@code consumers=N} such threads. */
public final class Loop {
    public static void main(String[] arguments) throws Exception {
        Trial trial = new Trial(arguments);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < trial.number("consumers"); number++) {
            Thread thread = new Thread(() -> consume(trial), "consumer-" + number);
            thread.start();
            threads.add(thread);
        }
        Trial.Stop join = () -> {
            for (Thread thread : threads) {
                thread.join();
            }
        };
        trial.finish(join, "kafka-clients");
    }

    private static void consume(Trial trial) {
        try (var consumer = new KafkaConsumer<byte[], byte[]>(trial.consumer())) {
            consumer.subscribe(List.of(trial.topic));
            while (!trial.isOver()) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    trial.handle(record.value());
                }
                if (!batch.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
    }
}
