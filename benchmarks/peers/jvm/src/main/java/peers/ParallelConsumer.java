package peers;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** Confluent's parallel-consumer; {@code order=KEY} or {@code order=UNORDERED}. */
public final class ParallelConsumer {
    public static void main(String[] arguments) throws Exception {
        Trial trial = new Trial(arguments);
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(trial.options.get("order")))
                .maxConcurrency(trial.slots)
                .consumer(new KafkaConsumer<>(trial.consumer()))
                .build();
        var processor = ParallelStreamProcessor.<byte[], byte[]>createEosStreamProcessor(options);
        processor.subscribe(List.of(trial.topic));
        processor.poll(context -> trial.handle(context.getSingleConsumerRecord().value()));
        trial.finish(
                () -> processor.closeDrainFirst(Duration.ofSeconds(10)),
                "parallel-consumer-core",
                "kafka-clients");
    }
}
