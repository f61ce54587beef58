// Serves DynamoDB Local on a loopback port that the system chooses, until standard input ends. DynamoDB
// Local's own command line listens on all addresses, needs a port that is chosen before, and keeps running
// when its parent ends. To run this file: java -cp 'jars/*' -Djava.library.path=jars Serve.java

import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandler;
import software.amazon.dynamodb.services.local.monitoring.Telemetry;
import software.amazon.dynamodb.services.local.server.LocalDynamoDBRequestHandler;
import software.amazon.dynamodb.services.local.server.LocalDynamoDBServerHandler;

class Serve {
    public static void main(String[] arguments) throws Exception {
        Telemetry.configureTelemetry("none", "none", false);
        boolean inMemory = true;
        boolean sharedByAllCredentials = true;
        boolean slowTables = false;
        var requests = new LocalDynamoDBRequestHandler(0, inMemory, null, sharedByAllCredentials, slowTables);
        var server = new Server(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        var context = new ContextHandler();
        context.setHandler(new LocalDynamoDBServerHandler(requests, null));
        server.setHandler(context);
        server.start();
        System.out.println("port " + ((ServerConnector) server.getConnectors()[0]).getLocalPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            // Ignores the input. Only its end matters.
        }
        server.stop();
        System.exit(0);
    }
}
