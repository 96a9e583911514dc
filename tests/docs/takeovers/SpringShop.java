import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** The listener of docs/migration.md in an application without Spring Boot; SIGTERM ends it. */
@Configuration
@EnableKafka
@EnableKafkaRetryTopic
public class SpringShop {
    private final Map<String, Object> kafka =
            Map.of("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP"));
    private final Shop shop = new Shop();

    /*LISTENER*/

    @Bean
    KafkaAdmin kafkaAdmin() {
        return new KafkaAdmin(kafka);
    }

    /** Of the retry topics. */
    @Bean
    TaskScheduler taskScheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @Bean
    KafkaTemplate<String, String> kafkaTemplate() {
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(
                kafka, new StringSerializer(), new StringSerializer()));
    }

    @Bean
    ConsumerFactory<String, String> consumerFactory() {
        Map<String, Object> settings = new HashMap<>(kafka);
        settings.put("auto.offset.reset", "earliest");
        return new DefaultKafkaConsumerFactory<>(
                settings, new StringDeserializer(), new StringDeserializer());
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(consumerFactory());
        return factory;
    }

    public static void main(String[] arguments) {
        new AnnotationConfigApplicationContext(SpringShop.class).registerShutdownHook();
    }

    /** What the listener calls: it appends to the file of the test. */
    static class Shop {
        private final Path calls = Path.of(System.getenv("CALLS"));
        private final String refused = System.getenv("REFUSED");

        synchronized void charge(String order) {
            String number = order.replaceAll("\\D", "");
            boolean refuse = Arrays.asList(refused.split(",")).contains(number);
            try {
                String line = (refuse ? "refused " : "charged ") + number + "\n";
                Files.writeString(calls, line, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            if (refuse) {
                throw new IllegalStateException("refused " + number);
            }
        }
    }
}
