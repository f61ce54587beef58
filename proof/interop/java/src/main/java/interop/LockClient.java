package interop;

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.ReleaseLockOptions;
import com.amazonaws.services.dynamodbv2.SendHeartbeatOptions;
import com.amazonaws.services.dynamodbv2.model.LockNotGrantedException;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;

/** One lock client with the settings of the protocol's {@code open}, and the locks that it holds. */
final class LockClient {
    /** The library's own default for waiting and polling. It must be set, because the unit is milliseconds here. */
    private static final long ONE_SECOND = 1000;

    private final JsonObject settings;
    private final AmazonDynamoDBLockClient locks;
    private final Map<String, LockItem> held = new HashMap<>();

    LockClient(JsonObject settings) {
        this.settings = settings;
        long lease = settings.get("leaseMillis").getAsLong();
        long renew = number(settings, "renewMillis", 0);
        locks = new AmazonDynamoDBLockClient(
                AmazonDynamoDBLockClientOptions.builder(dynamoDb(settings), settings.get("table").getAsString())
                        .withPartitionKeyName("key")
                        .withOwnerName(settings.get("owner").getAsString())
                        .withTimeUnit(TimeUnit.MILLISECONDS)
                        .withLeaseDuration(lease)
                        .withHeartbeatPeriod(renew > 0 ? renew : lease / 4)
                        .withCreateHeartbeatBackgroundThread(renew > 0)
                        .build());
    }

    private static DynamoDbClient dynamoDb(JsonObject settings) {
        return DynamoDbClient.builder()
                .endpointOverride(URI.create(settings.get("endpoint").getAsString()))
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .build();
    }

    /** Returns a client with the same settings and another owner. */
    LockClient another(int contender) {
        JsonObject changed = settings.deepCopy();
        changed.addProperty("owner", settings.get("owner").getAsString() + "-" + contender);
        return new LockClient(changed);
    }

    JsonObject acquire(JsonObject request) throws InterruptedException {
        String key = request.get("key").getAsString();
        AcquireLockOptions options = options(key, request);
        LockItem lock = number(request, "waitMillis", 0) > 0
                ? locks.acquireLock(options)
                : locks.tryAcquireLock(options).orElseThrow(() -> new LockNotGrantedException("refused"));
        held.put(key, lock);
        return told(lock);
    }

    JsonObject renew(JsonObject request) throws Driver.Lost {
        LockItem lock = held.get(request.get("key").getAsString());
        SendHeartbeatOptions.SendHeartbeatOptionsBuilder options = SendHeartbeatOptions.builder(lock);
        if (request.has("data")) {
            options.withData(bytes(request.get("data")));
        }
        try {
            locks.sendHeartbeat(options.build());
        } catch (LockNotGrantedException e) {
            throw new Driver.Lost(e.toString());
        }
        return told(lock);
    }

    JsonObject release(JsonObject request) throws Driver.Lost {
        LockItem lock = held.remove(request.get("key").getAsString());
        boolean released = request.has("delete")
                ? locks.releaseLock(ReleaseLockOptions.builder(lock)
                        .withDeleteLock(request.get("delete").getAsBoolean())
                        .build())
                : locks.releaseLock(lock);
        if (!released) {
            throw new Driver.Lost("releaseLock returned false");
        }
        return new JsonObject();
    }

    JsonObject read(JsonObject request) {
        return locks.getLock(request.get("key").getAsString(), Optional.empty())
                .map(LockClient::told)
                .orElseGet(JsonObject::new);
    }

    private static AcquireLockOptions options(String key, JsonObject request) {
        long wait = number(request, "waitMillis", 0);
        AcquireLockOptions.AcquireLockOptionsBuilder options = AcquireLockOptions.builder(key)
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withAdditionalTimeToWaitForLock(wait > 0 ? wait : ONE_SECOND)
                .withRefreshPeriod(number(request, "pollMillis", ONE_SECOND))
                .withShouldSkipBlockingWait(wait == 0)
                .withReplaceData(flag(request, "replaceData"))
                .withUpdateExistingLockRecord(flag(request, "update"))
                // The library deletes the row by default. The protocol keeps it.
                .withDeleteLockOnRelease(flag(request, "deleteOnRelease"));
        if (request.has("data")) {
            options.withData(bytes(request.get("data")));
        }
        if (request.has("attributes")) {
            Map<String, AttributeValue> attributes = new HashMap<>();
            for (Map.Entry<String, JsonElement> entry : request.getAsJsonObject("attributes").entrySet()) {
                attributes.put(entry.getKey(), AttributeValue.fromS(entry.getValue().getAsString()));
            }
            options.withAdditionalAttributes(attributes);
        }
        return options.build();
    }

    private static JsonObject told(LockItem lock) {
        JsonObject told = new JsonObject();
        told.addProperty("owner", lock.getOwnerName());
        told.addProperty("version", lock.getRecordVersionNumber());
        told.addProperty("leaseMillis", lock.getLeaseDuration());
        lock.getData().ifPresent(data ->
                told.addProperty("data", StandardCharsets.UTF_8.decode(data.duplicate()).toString()));
        JsonObject attributes = new JsonObject();
        lock.getAdditionalAttributes().forEach((name, value) ->
                attributes.addProperty(name, value.s() != null ? value.s() : value.n()));
        told.add("attributes", attributes);
        JsonObject answer = new JsonObject();
        answer.add("lock", told);
        return answer;
    }

    private static ByteBuffer bytes(JsonElement text) {
        return ByteBuffer.wrap(text.getAsString().getBytes(StandardCharsets.UTF_8));
    }

    static long number(JsonObject request, String name, long otherwise) {
        return request.has(name) ? request.get(name).getAsLong() : otherwise;
    }

    private static boolean flag(JsonObject request, String name) {
        return request.has(name) && request.get(name).getAsBoolean();
    }
}
