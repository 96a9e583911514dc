package peers;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One run of a peer in a process of its own: its arguments, a handler that notes, and the answer.
 *
 * <p>The same as runners/trial.py, which says what the arguments are; journal.py has the format of
 * the file. An untimed run's handler only keeps the record's number.
 */
final class Trial {
    /** A peer's graceful stop. */
    interface Stop {
        void run() throws Exception;
    }

    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
    private static final double FIRST_S = 30;
    private static final double STOP_S = 15;
    private static final long LOOK_NS = 5_000_000;

    /** The run of this process, for what the Kafka client makes by itself. */
    static Trial running;

    final String topic;
    final String group;
    final int records;
    final int partitions;
    final int slots;
    final boolean timed;
    final Map<String, String> options = new HashMap<>();
    /** Set when all records are finished, or the time is up: now the peer has to stop. */
    final CountDownLatch over = new CountDownLatch(1);

    private final double capS;
    private final AtomicInteger count = new AtomicInteger();
    private final int[] numbers;
    private final long[] fetched;
    private final long[] started;
    private final long[] ended;
    private final AtomicBoolean answered = new AtomicBoolean();
    private volatile double seconds;
    private volatile int seen;
    private volatile long overAt;
    private volatile String problem = "";

    Trial(String[] arguments) {
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            options.put(pair[0], pair[1]);
        }
        topic = options.get("topic");
        group = options.get("group");
        records = number("records");
        partitions = number("partitions");
        slots = number("slots");
        timed = options.get("timed").equals("yes");
        capS = Double.parseDouble(options.get("cap_s"));
        int room = records + records / 4 + 10_000; // for records that are handled again
        numbers = new int[room];
        fetched = new long[timed ? records : 0];
        started = new long[timed ? room : 0];
        ended = new long[timed ? room : 0];
        running = this;
        Thread watch = new Thread(this::watch, "watch");
        watch.setDaemon(true);
        watch.start();
    }

    int number(String option) {
        return Integer.parseInt(options.get(option));
    }

    /** The settings of a consumer that finds the topic's start by itself and does not commit. */
    Properties consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("key.deserializer", bytes);
        settings.put("value.deserializer", bytes);
        if (timed) {
            settings.put("interceptor.classes", HandOver.class.getName());
        }
        return settings;
    }

    /** What the peer's handler does with a value. */
    void handle(byte[] value) {
        int number = (int) INT.get(value, 0);
        if (!timed) {
            numbers[count.getAndIncrement()] = number;
            return;
        }
        int waitUs = (int) INT.get(value, 4);
        long begun = System.nanoTime();
        if (waitUs > 0) {
            try {
                Thread.sleep(waitUs / 1000, waitUs % 1000 * 1000);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }
        long end = System.nanoTime();
        int place = count.getAndIncrement();
        started[place] = begun;
        ended[place] = end;
        numbers[place] = number;
    }

    /** Notes that the client hands a record over now. */
    void handedOver(byte[] value, long now) {
        fetched[(int) INT.get(value, 0)] = now;
    }

    boolean isOver() {
        return over.getCount() == 0;
    }

    /** Waits until it is over, stops the peer, and answers. */
    void finish(Stop stop, String... artifacts) throws Exception {
        over.await();
        try {
            stop.run();
        } catch (Exception exception) {
            problem = "stop: " + exception;
        }
        answer(Map.of(), artifacts);
    }

    /** Writes the journal, prints what is to be said, and ends the process. */
    void answer(Map<Integer, Long> committed, String... artifacts) throws IOException {
        if (!answered.compareAndSet(false, true)) {
            return;
        }
        double tookS = overAt == 0 ? 0 : (System.nanoTime() - overAt) / 1e9;
        writeJournal();
        StringBuilder said = new StringBuilder("{");
        said.append(String.format(Locale.ROOT, "\"seconds\": %.6f, \"seen\": %d", seconds, seen));
        said.append(String.format(Locale.ROOT, ", \"stop_s\": %.3f", tookS));
        said.append(", \"problem\": \"").append(problem.replaceAll("[\"\\\\\\p{Cntrl}]", " "));
        said.append("\", \"versions\": {");
        for (String artifact : artifacts) {
            said.append('"').append(artifact).append("\": \"").append(version(artifact));
            said.append("\", ");
        }
        said.append("\"Java\": \"").append(System.getProperty("java.version")).append("\"}");
        if (!committed.isEmpty()) {
            List<String> each = new ArrayList<>();
            committed.forEach((partition, end) -> each.add("\"" + partition + "\": " + end));
            said.append(", \"committed\": {").append(String.join(", ", each)).append('}');
        }
        System.out.println(said.append('}'));
        System.out.flush();
        // Whatever threads the peer has left behind, this process has said all.
        Runtime.getRuntime().halt(0);
    }

    private void watch() {
        long giveUp = System.nanoTime() + (long) (FIRST_S * 1e9);
        while (count.get() == 0 && System.nanoTime() < giveUp) {
            LockSupport.parkNanos(LOOK_NS);
        }
        long began = System.nanoTime();
        int before = count.get();
        if (before == 0) {
            problem = "no record within " + (int) FIRST_S + " s";
        }
        long last = began;
        while (before > 0 && System.nanoTime() - began < capS * 1e9) {
            long now = System.nanoTime();
            int done = count.get();
            if (done - before > seen) {
                seen = done - before;
                last = now;
            }
            if (done >= records && distinct(done) >= records) {
                break;
            }
            LockSupport.parkNanos(LOOK_NS);
        }
        seconds = (last - began) / 1e9;
        overAt = System.nanoTime();
        over.countDown();
        LockSupport.parkNanos((long) (STOP_S * 1e9));
        try {
            problem = "did not stop within " + (int) STOP_S + " s";
            answer(Map.of());
        } catch (IOException exception) {
            System.err.println(exception);
            Runtime.getRuntime().halt(1);
        }
    }

    private int distinct(int done) {
        BitSet found = new BitSet(records);
        for (int place = 0; place < done; place++) {
            found.set(numbers[place]);
        }
        return found.cardinality();
    }

    private void writeJournal() throws IOException {
        int done = count.get();
        Path path = Path.of(options.get("journal"));
        try (OutputStream file = Files.newOutputStream(path)) {
            String header = "{\"count\": " + done + ", \"timed\": " + timed + "}\n";
            file.write(header.getBytes(StandardCharsets.UTF_8));
            ByteBuffer ints = ByteBuffer.allocate(4 * done).order(ByteOrder.LITTLE_ENDIAN);
            ints.asIntBuffer().put(numbers, 0, done);
            file.write(ints.array());
            if (timed) {
                long[] handed = new long[done];
                for (int place = 0; place < done; place++) {
                    handed[place] = fetched[numbers[place]];
                }
                for (long[] column : new long[][] {handed, started, ended}) {
                    ByteBuffer longs = ByteBuffer.allocate(8 * done).order(ByteOrder.LITTLE_ENDIAN);
                    longs.asLongBuffer().put(column, 0, done);
                    file.write(longs.array());
                }
            }
        }
    }

    /** The version in the name of an artifact's jar. */
    private static String version(String artifact) {
        String path = System.getProperty("java.class.path");
        Matcher found = Pattern.compile("/" + artifact + "-([0-9][^/:]*)\\.jar").matcher(path);
        return found.find() ? found.group(1) : "unknown";
    }
}
