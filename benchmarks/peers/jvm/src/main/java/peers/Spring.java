package peers;

import java.util.HashMap;
import java.util.Map;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.MessageListener;

/** spring-kafka: a listener container with a consumer for each partition, AckMode.BATCH. */
public final class Spring {
    public static void main(String[] arguments) throws Exception {
        Trial trial = new Trial(arguments);
        Map<String, Object> settings = new HashMap<>();
        trial.consumer().forEach((key, value) -> settings.put((String) key, value));
        ContainerProperties properties = new ContainerProperties(trial.topic);
        properties.setGroupId(trial.group);
        properties.setAckMode(ContainerProperties.AckMode.BATCH);
        MessageListener<byte[], byte[]> listener = record -> trial.handle(record.value());
        properties.setMessageListener(listener);
        var container = new ConcurrentMessageListenerContainer<byte[], byte[]>(
                new DefaultKafkaConsumerFactory<>(settings), properties);
        container.setConcurrency(trial.partitions);
        container.start();
        trial.finish(container::stop, "spring-kafka", "kafka-clients");
    }
}
