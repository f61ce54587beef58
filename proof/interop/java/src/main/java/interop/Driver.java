package interop;

import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import com.amazonaws.services.dynamodbv2.model.LockNotGrantedException;
import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Runs the Java lock client with the line protocol that proof/interop/README.md describes. */
public final class Driver {
    private static final Gson GSON = new Gson();
    private LockClient client;

    public static void main(String[] arguments) throws IOException {
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println(GSON.toJson(driver.answer(JsonParser.parseString(line).getAsJsonObject())));
            System.out.flush();
        }
        // The parent process has ended. The client's own threads must not keep this process alive.
        Runtime.getRuntime().halt(0);
    }

    private JsonObject answer(JsonObject request) {
        try {
            JsonObject answer = carryOut(request);
            answer.addProperty("ok", true);
            return answer;
        } catch (Exception e) {
            JsonObject answer = new JsonObject();
            answer.addProperty("ok", false);
            answer.addProperty("why", why(e));
            answer.addProperty("error", e.toString());
            return answer;
        }
    }

    private JsonObject carryOut(JsonObject request) throws Exception {
        String action = request.get("do").getAsString();
        if (action.equals("open")) {
            client = new LockClient(request);
            return new JsonObject();
        }
        return switch (action) {
            case "acquire" -> client.acquire(request);
            case "renew" -> client.renew(request);
            case "release" -> client.release(request);
            case "read" -> client.read(request);
            case "pairs" -> Work.pairs(client, request);
            case "contend" -> Work.contend(client, request);
            default -> throw new IllegalArgumentException("unknown action " + action);
        };
    }

    private static String why(Exception e) {
        if (e instanceof Lost) {
            return "lost";
        }
        return e instanceof LockNotGrantedException || e instanceof LockCurrentlyUnavailableException ? "held" : "failed";
    }

    /** The lock is no longer this client's. */
    static final class Lost extends Exception {
        private static final long serialVersionUID = 1;

        Lost(String message) {
            super(message);
        }
    }
}
