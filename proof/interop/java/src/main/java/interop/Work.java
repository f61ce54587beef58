package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/** Loops for measurements. They run inside the driver, so that the measured time does not include the line protocol. */
final class Work {
    private Work() {}

    /** Acquires and releases free locks, one pair after another. */
    static JsonObject pairs(LockClient client, JsonObject request) throws Exception {
        JsonArray acquire = new JsonArray();
        JsonArray release = new JsonArray();
        JsonArray keys = request.getAsJsonArray("keys");
        int count = request.get("count").getAsInt();
        for (int pair = 0; pair < count; pair++) {
            request.add("key", keys.get(pair % keys.size()));
            long began = System.nanoTime();
            client.acquire(request);
            long acquired = System.nanoTime();
            client.release(request);
            acquire.add((acquired - began) / 1000);
            release.add((System.nanoTime() - acquired) / 1000);
        }
        JsonObject answer = new JsonObject();
        answer.add("acquireMicros", acquire);
        answer.add("releaseMicros", release);
        return answer;
    }

    /** Lets each contender acquire and release the same key once per round. */
    static JsonObject contend(LockClient client, JsonObject request) throws Exception {
        List<LockClient> contenders = new ArrayList<>();
        for (int contender = 0; contender < request.get("contenders").getAsInt(); contender++) {
            contenders.add(client.another(contender));
        }
        AtomicInteger holders = new AtomicInteger();
        AtomicInteger overlaps = new AtomicInteger();
        ExecutorService threads = Executors.newFixedThreadPool(contenders.size());
        long began = System.nanoTime();
        List<Future<JsonArray>> running = new ArrayList<>();
        for (LockClient contender : contenders) {
            Callable<JsonArray> all = () -> takeTurns(contender, request, holders, overlaps, began);
            running.add(threads.submit(all));
        }
        JsonArray turns = new JsonArray();
        for (Future<JsonArray> some : running) {
            turns.addAll(some.get());
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("micros", (System.nanoTime() - began) / 1000);
        answer.addProperty("overlaps", overlaps.get());
        answer.add("turns", turns);
        threads.shutdown();
        return answer;
    }

    /** Returns of each turn when its caller came, was granted the lock and began to release it, in microseconds. */
    private static JsonArray takeTurns(
            LockClient client, JsonObject request, AtomicInteger holders, AtomicInteger overlaps, long began)
            throws Exception {
        JsonArray turns = new JsonArray();
        for (int round = request.get("rounds").getAsInt(); round > 0; round--) {
            JsonArray turn = new JsonArray();
            turn.add((System.nanoTime() - began) / 1000);
            client.acquire(request);
            turn.add((System.nanoTime() - began) / 1000);
            if (holders.incrementAndGet() != 1) {
                overlaps.incrementAndGet();
            }
            Thread.sleep(LockClient.number(request, "workMillis", 0));
            holders.decrementAndGet();
            turn.add((System.nanoTime() - began) / 1000);
            client.release(request);
            turns.add(turn);
        }
        return turns;
    }
}
