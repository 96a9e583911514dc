package peers;

import io.github.eschizoid.kpipe.consumer.KPipeConsumer;
import io.github.eschizoid.kpipe.consumer.KafkaOffsetManager;
import io.github.eschizoid.kpipe.consumer.ProcessingMode;
import io.github.eschizoid.kpipe.registry.MessageFormat;
import io.github.eschizoid.kpipe.registry.MessageProcessorRegistry;

/** kpipe: a virtual thread for each key or each record; {@code mode=KEY_ORDERED} or PARALLEL. */
public final class Kpipe {
    public static void main(String[] arguments) throws Exception {
        Trial trial = new Trial(arguments);
        var pipeline = new MessageProcessorRegistry()
                .pipeline(MessageFormat.bytes())
                .add(value -> {
                    trial.handle(value);
                    return value;
                })
                .build();
        var builder = KPipeConsumer.builder();
        // Without an offset manager it commits nothing.
        var consumer = builder.withProperties(trial.consumer())
                .withTopic(trial.topic)
                .withPipeline(pipeline)
                .withProcessingMode(ProcessingMode.valueOf(trial.options.get("mode")))
                .withOffsetManagerProvider(client -> KafkaOffsetManager.builder(client)
                        .withCommitExecutor(builder.getCommitExecutor())
                        .build())
                .build();
        consumer.start();
        trial.finish(consumer::close, "kpipe-consumer", "kafka-clients");
    }
}
