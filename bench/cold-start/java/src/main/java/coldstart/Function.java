package coldstart;

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.ReleaseLockOptions;
import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/**
 * The Java lock client in a function: acquire and release with the payloads of lock-task, as far as the runner
 * reads them. The process keeps the acquired lock for the release.
 */
public final class Function implements RequestHandler<Map<String, Object>, Map<String, Object>> {
    private final AmazonDynamoDBLockClient locks;
    private final Map<String, LockItem> held = new HashMap<>();

    public Function() {
        DynamoDbClient dynamoDb = DynamoDbClient.builder()
                .endpointOverride(URI.create(System.getenv("AWS_ENDPOINT_URL")))
                .region(Region.of(System.getenv("AWS_REGION")))
                .credentialsProvider(EnvironmentVariableCredentialsProvider.create())
                .build();
        locks = new AmazonDynamoDBLockClient(
                AmazonDynamoDBLockClientOptions.builder(dynamoDb, System.getenv("LOCK_TABLE"))
                        .withPartitionKeyName("key")
                        .withOwnerName("cold-start")
                        .withTimeUnit(TimeUnit.SECONDS)
                        .withLeaseDuration(30L)
                        .withHeartbeatPeriod(10L)
                        .withCreateHeartbeatBackgroundThread(false)
                        .build());
    }

    @Override
    public Map<String, Object> handleRequest(Map<String, Object> request, Context context) {
        if ("acquire".equals(request.get("action"))) {
            String key = (String) request.get("key");
            held.put(key, acquire(key));
            return Map.of("acquired", true, "lock", Map.of("key", key));
        }
        String key = (String) ((Map<?, ?>) request.get("lock")).get("key");
        boolean released = locks.releaseLock(
                ReleaseLockOptions.builder(held.remove(key)).withDeleteLock(false).build());
        return Map.of("released", released);
    }

    private LockItem acquire(String key) {
        try {
            return locks.tryAcquireLock(AcquireLockOptions.builder(key).build()).orElseThrow();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
