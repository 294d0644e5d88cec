import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;

/** Four threads, parallel streams, maps that are shared, garbage that is collected: what comes out is known. */
public class Busy {
    public static void main(String[] args) throws Exception {
        int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 20;
        ExecutorService pool = Executors.newFixedThreadPool(4);
        ConcurrentHashMap<Integer, LongAdder> counts = new ConcurrentHashMap<>();
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            CountDownLatch done = new CountDownLatch(4);
            for (int t = 0; t < 4; t++) {
                int own = t;
                pool.submit(() -> {
                    byte[][] waste = new byte[64][];
                    for (int i = 0; i < 5000; i++) {
                        waste[i % 64] = new byte[1000 + own];
                        counts.computeIfAbsent(i % 97, k -> new LongAdder()).increment();
                    }
                    done.countDown();
                });
            }
            done.await();
            sum += IntStream.range(0, 200000).parallel().mapToLong(i -> (long) i * i % 7).sum();
            if (round % 5 == 0) System.gc();
        }
        pool.shutdown();
        long all = counts.values().stream().mapToLong(LongAdder::sum).sum();
        System.out.println(sum + " " + all + " " + counts.size());
    }
}
