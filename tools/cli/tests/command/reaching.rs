//! How the command finds credentials, endpoints, proxies and certificates.

use crate::place::{Ended, LEASE, Place, TABLE, end, end_of, interrupt};
use lambda_lock_local::LocalDynamoDb;
use lambda_lock_local::authorize::{AuthorizingProxy, Grant, Role};
use lambda_lock_testkit::{soon, soon_so};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// A server, and the requests that it got: their heads and bodies.
pub(crate) struct Server {
    pub(crate) endpoint: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// It answers each request with a body.
    pub(crate) async fn answering(answer: fn(&str) -> (u16, String)) -> Self {
        Self::answering_with("", answer).await
    }

    /// It adds these lines to the head of its answers.
    async fn answering_with(lines: &'static str, answer: fn(&str) -> (u16, String)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = asked.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = request(&mut stream).await;
                let (status, body) = answer(&request);
                seen.lock().unwrap().push(request);
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} .\r\n{lines}connection: close\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { endpoint, asked }
    }

    fn asked(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|request| request.contains(what)).count()
    }
}

async fn request(stream: &mut TcpStream) -> String {
    let mut read = String::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        read += std::str::from_utf8(&buffer[..count]).unwrap();
        let Some((head, body)) = read.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if count == 0 || body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return read;
        }
    }
}

/// STS, the portal of SSO, and the credentials of a container.
fn credentials(request: &str) -> (u16, String) {
    const FOREVER: &str = "2100-01-01T00:00:00Z";
    let sts = |operation: &str, id: &str| {
        format!(
            "<{operation}Response><{operation}Result><Credentials><AccessKeyId>{id}</AccessKeyId>\
             <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{FOREVER}</Expiration>\
             </Credentials></{operation}Result></{operation}Response>"
        )
    };
    let body = match request {
        _ if request.contains("Action=AssumeRoleWithWebIdentity") => sts("AssumeRoleWithWebIdentity", "web"),
        // What a container has is the source of a role.
        _ if request.contains("Action=AssumeRole") && request.contains("Credential=container/") => {
            sts("AssumeRole", "container-role")
        }
        _ if request.contains("Action=AssumeRole") => sts("AssumeRole", "role"),
        _ if request.contains("GET /federation/credentials") => {
            r#"{"roleCredentials":{"accessKeyId":"sso","secretAccessKey":"s","sessionToken":"t","expiration":4102444800000}}"#.to_owned()
        }
        _ => format!(r#"{{"AccessKeyId":"container","SecretAccessKey":"s","Token":"t","Expiration":"{FOREVER}"}}"#),
    };
    (200, body)
}

/// A directory of the test's own.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reaching").join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn file(path: PathBuf, text: &str) -> String {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_used_wherever_its_credentials_come_from() {
    let place = Place::new().await;
    let may_look = Grant::new("dynamodb:Scan", format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{TABLE}"));
    let names = ["role", "web", "container-role", "sso", "login", "process"];
    let roles = names.map(|name| (name.to_owned(), Role::from_iter([may_look.clone()])));
    let proxy = AuthorizingProxy::start(place.local.endpoint(), BTreeMap::from(roles)).await.unwrap();
    let server = Server::answering(credentials).await;
    let home = directory("profiles");
    let token = file(home.join("token"), "a token");
    file(
        home.join(".aws/sso/cache/e8be5486177c5b5392bd9aa76563515b29358e6e.json"),
        r#"{"accessToken":"a","expiresAt":"2100-01-01T00:00:00Z","region":"eu-central-1","startUrl":"https://example.awsapps.com/start"}"#,
    );
    file(
        home.join(".aws/login/cache/05d4293b920f9332873333ef86001c397e826748e69c2ddcd0f661ed93f13355.json"),
        r#"{"accessToken":{"accessKeyId":"login","secretAccessKey":"s","sessionToken":"t","accountId":"123456789012","expiresAt":"2100-01-01T00:00:00Z"},"tokenType":"aws_sigv4","refreshToken":"r","clientId":"c","dpopKey":"k"}"#,
    );
    let arn = "arn:aws:iam::123456789012:role/operator";
    let configuration = format!(
        "[profile base]\naws_access_key_id = base\naws_secret_access_key = s\n\
         [profile role]\nrole_arn = {arn}\nsource_profile = base\n\
         [profile web]\nrole_arn = {arn}\nweb_identity_token_file = {token}\n\
         [profile container-role]\nrole_arn = {arn}\ncredential_source = EcsContainer\n\
         [profile sso]\nsso_start_url = https://example.awsapps.com/start\nsso_region = eu-central-1\n\
         sso_account_id = 123456789012\nsso_role_name = operator\n\
         [profile login]\nlogin_session = arn:aws:iam::123456789012:user/operator\n\
         [profile process]\ncredential_process = echo '{{\"Version\":1,\"AccessKeyId\":\"process\",\"SecretAccessKey\":\"s\"}}'\n"
    );
    let configuration = file(home.join("config"), &configuration);
    let command = || {
        let mut command = place.command();
        command.env("HOME", &home).env("AWS_CONFIG_FILE", &configuration);
        command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()).env("AWS_ENDPOINT_URL_STS", &server.endpoint);
        command.env("AWS_ENDPOINT_URL_SSO", &server.endpoint);
        command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/container", server.endpoint));
        command
    };
    for name in names {
        // Others are in the environment, and do not count.
        end(command().args(["ls", "--profile", name])).await.done();
        let mut named = command();
        named.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env("AWS_PROFILE", name);
        end(named.arg("ls")).await.done();
        assert!(!proxy.used(name).is_empty(), "{name}");
    }
    // The AWS command line reads this one too.
    let mut named = command();
    named.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env("AWS_DEFAULT_PROFILE", "process");
    end(named.arg("ls")).await.done();
    // It counts before the other one.
    end(named.env("AWS_PROFILE", "base")).await.done();
}

/// The credentials and the Region that are there would be those of another account.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_is_nowhere_is_not_passed_over() {
    let place = Place::new().await;
    let is_refused = |ended: Ended| {
        assert!(ended.code() == 77 && ended.err.contains("the profile \"nobody\" is not in"), "{ended:?}");
    };
    is_refused(place.run(&["ls", "--profile", "nobody"]).await);
    for variable in ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"] {
        is_refused(end(place.command().env(variable, "nobody").arg("ls")).await);
    }
}

/// A code of an MFA device is good for one use.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_asks_for_credentials_once() {
    let place = Place::new().await;
    let workflow = "arn:aws:states:eu-central-1:111122223333:execution:nightly:4711";
    let held = place.locks("test").acquire("nightly").workflow(workflow).lease(LEASE).try_once().await.unwrap();
    let _ = held.granted().unwrap().save();
    let server = Server::answering(|_| (400, r#"{"__type":"ExecutionDoesNotExist"}"#.to_owned())).await;
    let home = directory("once");
    let script = r#"echo asked >> "$1"; echo '{"Version":1,"AccessKeyId":"k","SecretAccessKey":"s"}'"#;
    let script = file(home.join("credentials.sh"), script);
    for (number, arguments) in [
        &["doctor", "--write"][..],
        &["show", "nightly"],
        &["history", "nightly"],
        &["run", "free", "--", "true"],
        &["raise-tokens", "--yes"],
    ]
    .into_iter()
    .enumerate()
    {
        for named in [true, false] {
            let asked = home.join(format!("asked-{number}-{named}"));
            let process = format!("credential_process = sh {script} {}\n", asked.display());
            let configuration = file(home.join("config"), &format!("[default]\n{process}[profile named]\n{process}"));
            let mut command = place.command();
            command.env("AWS_CONFIG_FILE", configuration).env("AWS_ENDPOINT_URL_SFN", &server.endpoint);
            command.env("AWS_ENDPOINT_URL_CLOUDFORMATION", &server.endpoint).args(arguments);
            if named {
                let position = arguments.iter().position(|one| *one == "--");
                let mut arguments = arguments.to_vec();
                arguments.splice(position.unwrap_or(arguments.len()).min(1)..1, ["--profile", "named"]);
                let mut again = place.command();
                again
                    .envs(command.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))))
                    .args(arguments);
                command = again;
            } else {
                command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
            }
            let ended = end(&mut command).await;
            let asked = std::fs::read_to_string(asked).unwrap_or_default();
            assert_eq!(asked, "asked\n", "{arguments:?}, --profile {named}: {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it waits for a minute, and `.ci/nightly` runs it"]
async fn a_program_for_credentials_that_hangs_is_ended_after_a_minute() {
    let place = Place::new().await;
    let home = directory("hangs");
    let script = r#"sleep 10000 & echo $$ $! > "$1"; wait"#;
    let (script, pids) = (file(home.join("credentials.sh"), script), home.join("pids"));
    let process = format!("[default]\ncredential_process = sh {script} {}; true\n", pids.display());
    let mut command = place.command();
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_CONFIG_FILE", file(home.join("config"), &process)).args(["run", "k", "--", "true"]);

    let ended = end(&mut command).await;

    assert_eq!(ended.code(), 77, "{ended:?}");
    assert!(ended.err.contains("waiting for the configuration and credentials of AWS, 55s more at most"), "{ended:?}");
    assert!(ended.err.contains("did not come within 1m") && ended.err.contains("credential_process"), "{ended:?}");
    if cfg!(target_os = "linux") {
        for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
            let lives =
                async || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") S "));
            soon_so(format!("{pid} has ended"), async || !lives().await).await;
        }
    }
}

/// A command for each file that the configuration is read from. Nobody writes into that one, as where a file server hangs.
fn with_files_that_do_not_respond(place: &Place, name: &str) -> Vec<Command> {
    let home = directory(name);
    let names = ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"];
    let of = |variable| {
        let file = home.join(variable);
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let mut command = place.command();
        command.env(variable, file).args(["run", "k", "--", "true"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    names.into_iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_configuration_that_does_not_respond_is_said_and_a_signal_ends_the_wait() {
    let place = Place::new().await;
    let started =
        with_files_that_do_not_respond(&place, "silent-files").into_iter().map(|mut one| one.spawn().unwrap());
    for mut child in started.collect::<Vec<_>>() {
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = soon("it says so", said.next_line()).await.unwrap().unwrap();
        assert!(said.contains("waiting for the configuration") && said.contains("a file does not respond"), "{said}");
        interrupt(&child);
        assert_eq!(end_of(child).await.status.signal(), Some(Signal::INT.as_raw()));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it waits for a minute, and `.ci/nightly` runs it"]
async fn a_file_of_the_configuration_that_does_not_respond_ends_the_command_after_a_minute() {
    let place = Place::new().await;
    let commands = with_files_that_do_not_respond(&place, "silent-files-for-a-minute");
    let ends = commands.into_iter().map(|mut command| async move { end(&mut command).await });
    for ended in ends.collect::<JoinSet<_>>().join_all().await {
        assert_eq!(ended.code(), 77, "{ended:?}");
        assert!(ended.err.contains("did not come within 1m") && ended.err.contains("does not respond"), "{ended:?}");
    }
    assert!(place.locks("test").operator().peek("k").await.unwrap().is_none(), "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_is_empty_counts_as_unset() {
    let place = Place::new().await;
    place.held("customer-1", "host-a/17").await.release().await.unwrap();
    let names = [
        "LOCK_TABLE",
        "LOCK_KEY_ATTRIBUTE",
        "LOCK_SORT_KEY_ATTRIBUTE",
        "LOCK_TTL_ATTRIBUTE",
        "LOCK_MAX_CLOCK_SKEW_MS",
        "LOCK_LEASE_DIALECT",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_DYNAMODB",
        "AWS_ENDPOINT_URL_SFN",
        "AWS_ENDPOINT_URL_STS",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
        "AWS_SESSION_TOKEN",
        "AWS_CONFIG_FILE",
        "AWS_RETRY_MODE",
        "AWS_MAX_ATTEMPTS",
        "AWS_CA_BUNDLE",
        "AWS_USE_FIPS_ENDPOINT",
        "AWS_USE_DUALSTACK_ENDPOINT",
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "NO_PROXY",
        "COLUMNS",
    ];
    let endpoint = ["ls", "--region", "eu-central-1", "--endpoint-url", place.local.endpoint()];
    let mut all = place.command();
    names.iter().for_each(|name| {
        all.env(name, "");
    });
    assert!(end(all.args(endpoint)).await.done().contains("customer-1"));
    for name in names {
        let mut one = place.command();
        one.env(name, "");
        let ended = end(one.args(endpoint)).await;
        assert!(ended.status.success() && ended.out.contains("customer-1"), "{name}: {ended:?}");
    }
    let mut region = place.command();
    let configuration = file(directory("empty").join("config"), "[default]\nregion = eu-central-1\n");
    region.env("AWS_REGION", "").env("AWS_DEFAULT_REGION", "").env("AWS_CONFIG_FILE", configuration);
    end(region.arg("ls")).await.done();
    // A command that is run has what means something when it is empty.
    let mut pager = place.command();
    pager.env("AWS_PAGER", "").env("AWS_PROFILE", "");
    let echo = "echo ${AWS_PAGER-unset} ${AWS_PROFILE-unset} ${LAMBDA_LOCK_EMPTY-unset}";
    let ran = end(pager.args(["run", "free", "--", "sh", "-c", echo])).await.done();
    assert_eq!(ran, "unset\n");
}

/// The SDK panics at some of them.
#[tokio::test(flavor = "multi_thread")]
async fn settings_for_retries_are_those_of_the_aws_command_line_and_wrong_ones_are_named() {
    let place = Place::new().await;
    let home = directory("retries");
    for (variable, setting, value, code) in [
        ("AWS_RETRY_MODE", "retry_mode", "legacy", 0),
        ("AWS_RETRY_MODE", "retry_mode", "Standard", 0),
        ("AWS_RETRY_MODE", "retry_mode", "adaptive", 0),
        ("AWS_RETRY_MODE", "retry_mode", "often", 2),
        ("AWS_MAX_ATTEMPTS", "max_attempts", " 3", 0),
        ("AWS_MAX_ATTEMPTS", "max_attempts", "0", 2),
        ("AWS_MAX_ATTEMPTS", "max_attempts", "-1", 2),
        ("AWS_MAX_ATTEMPTS", "max_attempts", "many", 2),
    ] {
        let mut by_variable = place.command();
        by_variable.env(variable, value);
        let mut by_profile = place.command();
        by_profile.env("AWS_CONFIG_FILE", file(home.join(value), &format!("[default]\n{setting} = {value}\n")));
        for (mut command, from) in [(by_variable, variable), (by_profile, "of the profile")] {
            let ended = end(command.arg("ls")).await;
            assert_eq!(ended.code(), code, "{setting} {value}: {ended:?}");
            assert!(code == 0 || ended.err.contains(value.trim()) && ended.err.contains(from), "{ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_file_with_a_line_that_means_nothing_is_not_ignored() {
    let place = Place::new().await;
    let configuration = file(directory("no-meaning").join("config"), "[default]\nregion = eu-west-1\nregion\n");
    let mut command = place.command();
    let ended = end(command.env("AWS_CONFIG_FILE", &configuration).arg("ls")).await;
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.err.contains(&configuration) && ended.err.contains("line"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_region_is_a_wrong_argument() {
    let place = Place::new().await;
    let configuration = file(directory("regions").join("config"), "[profile wrong]\nregion = us_east\n");
    for region in ["", "eu_central_1", "us east", "eu.", "Zürich"] {
        for arguments in [&["show", "k"][..], &["doctor"], &["ls"]] {
            let ended = end(place.command().args(arguments).args(["--region", region])).await;
            assert_eq!(ended.code(), 2, "{region}, {arguments:?}: {ended:?}");
            assert!(ended.err.contains(&format!("{region:?} is no Region")), "{ended:?}");
        }
    }
    let mut command = place.command();
    command.env_remove("AWS_REGION").env("AWS_CONFIG_FILE", configuration).env("AWS_PROFILE", "wrong").arg("ls");
    let of_profile = end(&mut command).await;
    assert!(of_profile.code() == 2 && of_profile.err.contains("\"us_east\" is no Region"), "{of_profile:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_no_url_is_a_wrong_argument() {
    let place = Place::new().await;
    let home = directory("endpoints");
    for wrong in
        ["localhost:8000", "127.0.0.1:8000", "dynamodb", "ftp://localhost", "http://", "http://host:port", "http://a b"]
    {
        let refused = |ended: Ended| {
            assert_eq!(ended.code(), 2, "{wrong}: {ended:?}");
            assert!(ended.err.contains("give a URL with its scheme"), "{wrong}: {ended:?}");
        };
        refused(place.run(&["ls", "--endpoint-url", wrong]).await);
        for variable in ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SFN"] {
            let mut command = place.command();
            command.env_remove("AWS_ENDPOINT_URL_DYNAMODB").env(variable, wrong);
            refused(end(command.arg("ls")).await);
        }
        let configuration = file(home.join("config"), &format!("[default]\nendpoint_url = {wrong}\n"));
        let mut command = place.command();
        command.env_remove("AWS_ENDPOINT_URL_DYNAMODB").env("AWS_CONFIG_FILE", configuration);
        refused(end(command.arg("ls")).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_wrong_is_said_without_its_secrets() {
    let place = Place::new().await;
    for (wrong, shown) in [
        ("http://me:secret@host:port", "http://***@host:port"),
        ("me:secret@host", "***@host"),
        ("http://host:port/?token=secret", "http://host:port/?***"),
    ] {
        let is_hidden = |ended: Ended| {
            assert_eq!(ended.code(), 2, "{ended:?}");
            assert!(ended.err.contains(shown) && !ended.err.contains("secret"), "{ended:?}");
        };
        is_hidden(place.run(&["ls", "--endpoint-url", wrong]).await);
        for variable in ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_STS"] {
            is_hidden(end(place.command().env(variable, wrong).arg("ls")).await);
        }
    }
}

/// Nobody who gives a DynamoDB of his own wants to send anything to AWS.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_dynamodb_of_ones_own_only_endpoints_that_count_are_asked() {
    let place = Place::new().await;
    let server = Server::answering(|_| (400, r#"{"__type":"ValidationError"}"#.to_owned())).await;
    let doctor = || {
        let mut command = place.command();
        command.args(["doctor", "--endpoint-url", place.local.endpoint()]);
        // What is sent to AWS comes here too.
        command.env("HTTPS_PROXY", &server.endpoint);
        command
    };
    let variable = "AWS_ENDPOINT_URL_CLOUDFORMATION";
    let ignoring = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS";

    let ignored = end(doctor().env(variable, &server.endpoint).env(ignoring, "true")).await;
    assert!(ignored.out.contains("another DynamoDB was given"), "{ignored:?}");
    assert_eq!(server.asked(""), 0, "{:?}", server.asked);
    end(doctor().env(variable, &server.endpoint)).await;
    let asked = server.asked("DescribeStackResources");
    assert!(asked > 0);
    let services =
        format!("[default]\nservices = s\n[services s]\ncloudformation =\n  endpoint_url = {}\n", server.endpoint);
    let configuration = file(directory("services").join("config"), &services);
    end(doctor().env("AWS_CONFIG_FILE", configuration)).await;
    assert!(server.asked("DescribeStackResources") > asked, "the profile says where it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_endpoints_are_ignored_where_a_variable_or_the_profile_says_so() {
    let place = Place::new().await;
    let profile = file(directory("ignoring").join("config"), "[default]\nignore_configured_endpoint_urls = true\n");
    for (variable, value) in [("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"), ("AWS_CONFIG_FILE", &profile)] {
        let ignoring = || {
            let mut command = place.command();
            command.env(variable, value).env("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1");
            command.env("HTTPS_PROXY", "http://127.0.0.1:1");
            command
        };
        let ended = end(ignoring().arg("ls")).await;
        let asks_aws = ended.err.contains("proxy") || ended.err.contains("tunnel");
        assert!(ended.code() == 69 && asks_aws, "{variable}: {ended:?}");
        end(ignoring().args(["ls", "--endpoint-url", place.local.endpoint()])).await.done();
    }
}

/// The SDK would take others, such as those of a profile for another account.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_credentials_in_the_environment_is_an_error() {
    let place = Place::new().await;
    let mut command = place.command();
    let profile =
        file(directory("half").join("credentials"), "[default]\naws_access_key_id = a\naws_secret_access_key = s\n");
    command.arg("ls").env_remove("AWS_SECRET_ACCESS_KEY").env("AWS_SHARED_CREDENTIALS_FILE", profile);
    let ended = end(&mut command).await;
    assert!(ended.code() == 77 && ended.err.contains("AWS_SECRET_ACCESS_KEY is not"), "{ended:?}");
    end(command.args(["--profile", "default"])).await.done();
}

/// The history of another DynamoDB than the lock's would be that of another lock.
#[tokio::test(flavor = "multi_thread")]
async fn the_streams_are_asked_where_they_are() {
    let place = Place::new().await;
    let table = |_: &str| {
        let stream = r#""LatestStreamArn":"arn","StreamSpecification":{"StreamEnabled":true,"StreamViewType":"NEW_AND_OLD_IMAGES"}"#;
        (200, format!(r#"{{"Table":{{{stream}}}}}"#))
    };
    let dynamodb = Server::answering_with("x-amzn-requestid: R1\r\n", table).await;
    let streams = Server::answering_with("x-amzn-requestid: R1\r\n", table).await;
    let history = || {
        let mut command = place.command();
        command.args(["history", "k"]).env("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", &streams.endpoint);
        command
    };
    end(history().env("AWS_ENDPOINT_URL_DYNAMODB", &dynamodb.endpoint)).await;
    assert_eq!([&dynamodb, &streams].map(|server| server.asked("DescribeStream")), [0, 1]);
    end(history().args(["--endpoint-url", &dynamodb.endpoint])).await;
    assert_eq!([&dynamodb, &streams].map(|server| server.asked("DescribeStream")), [1, 1]);
}

/// A command for a DynamoDB that only a proxy can reach.
fn far(place: &Place, endpoint: &str) -> Command {
    let mut command = place.command();
    command.env("AWS_ENDPOINT_URL_DYNAMODB", endpoint).arg("ls");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_through_the_proxy_of_their_scheme() {
    let place = Place::new().await;
    let empty = |_: &str| (200, r#"{"Count":0,"ScannedCount":0,"Items":[]}"#.to_owned());
    let proxy = Server::answering_with("x-amzn-requestid: R1\r\n", empty).await;
    let http = "http://dynamodb.example.test";
    for name in ["HTTP_PROXY", "http_proxy"] {
        end(far(&place, http).env(name, &proxy.endpoint)).await.done();
        let without_scheme = proxy.endpoint.trim_start_matches("http://");
        end(far(&place, http).env(name, without_scheme)).await.done();
    }
    assert_eq!(proxy.asked("POST http://dynamodb.example.test/"), 4, "{:?}", proxy.asked);
    let direct = end(far(&place, http).env("HTTP_PROXY", &proxy.endpoint).env("NO_PROXY", "example.test")).await;
    assert!(direct.code() == 69 && proxy.asked("POST") == 4, "{direct:?}");
    // An address is no name, and counts too.
    let nowhere = "http://127.0.0.1:1";
    end(far(&place, place.local.endpoint()).env("HTTP_PROXY", nowhere).env("NO_PROXY", "*")).await.done();
    end(place.command().arg("ls").env("HTTPS_PROXY", &proxy.endpoint)).await.done();
    assert_eq!(proxy.asked("POST"), 4, "a proxy of another scheme");

    // With a name and a password.
    let named = proxy.endpoint.replace("http://", "http://me:secret@");
    end(far(&place, "https://dynamodb.example.test").env("HTTPS_PROXY", named)).await;
    assert!(proxy.asked("CONNECT dynamodb.example.test:443") > 0 && proxy.asked("Basic bWU6c2VjcmV0") > 0);
    let wrong = end(far(&place, http).env("HTTPS_PROXY", "socks5://me:secret@localhost")).await;
    assert!(wrong.code() == 2 && wrong.err.contains("HTTPS_PROXY") && !wrong.err.contains("secret"), "{wrong:?}");
}

fn certificate(name: &str) -> String {
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    certificates.join(name).to_str().unwrap().to_owned()
}

/// Takes TLS off requests for the embedded DynamoDB. Returns its port. A CONNECT before them is answered first.
async fn tls(local: &LocalDynamoDb) -> u16 {
    let chain = vec![CertificateDer::from_pem_file(certificate("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let behind = local.endpoint().trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let mut first = [0; 7];
                if stream.peek(&mut first).await.is_ok_and(|_| &first == b"CONNECT") {
                    request(&mut stream).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                }
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut behind = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut behind).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_a_bundle_are_trusted_through_a_proxy_too() {
    let place = Place::new().await;
    let port = tls(&place.local).await;
    let near = format!("https://localhost:{port}");
    let home = directory("bundles");
    let authority = certificate("authority.pem");
    let trusted = |endpoint: &str| {
        let mut command = far(&place, endpoint);
        command.env("AWS_CA_BUNDLE", &authority);
        command
    };
    end(&mut trusted(&near)).await.done();
    let proxy = format!("http://127.0.0.1:{port}");
    end(trusted("https://dynamodb.example.test").env("HTTPS_PROXY", &proxy)).await.done();
    let configuration = format!("[default]\nca_bundle = {authority}\n[profile other]\nca_bundle = /no/such/file\n");
    let configuration = file(home.join("config"), &configuration);
    end(far(&place, &near).env("AWS_CONFIG_FILE", &configuration)).await.done();
    let other = end(far(&place, &near).env("AWS_CONFIG_FILE", &configuration).env("AWS_PROFILE", "other")).await;
    assert!(other.code() == 2 && other.err.contains("ca_bundle") && other.err.contains("/no/such/file"), "{other:?}");
    // As large bundles are: with one that cannot be used.
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let odd_and_good = file(home.join("odd.pem"), &format!("{odd}{}", std::fs::read_to_string(&authority).unwrap()));
    end(far(&place, &near).env("AWS_CA_BUNDLE", odd_and_good)).await.done();
    for (name, text) in [("nothing.pem", ""), ("only-odd.pem", odd)] {
        let path = file(home.join(name), text);
        let refused = end(far(&place, &near).env("AWS_CA_BUNDLE", path)).await;
        assert!(refused.code() == 2 && refused.err.contains("AWS_CA_BUNDLE"), "{name}: {refused:?}");
    }
}

/// A proxy that is far away: what it gets, in either direction, goes on after this time.
async fn slow(port: u16, each_way: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (near, far) =
                (listener.accept().await.unwrap().0, TcpStream::connect(("127.0.0.1", port)).await.unwrap());
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            for (mut from, mut to) in [(near_read, far_write), (far_read, near_write)] {
                let (sender, mut late) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
                tokio::spawn(async move {
                    let mut bytes = [0; 16384];
                    while let Ok(count @ 1..) = from.read(&mut bytes).await {
                        let _ = sender.send((Instant::now() + each_way, bytes[..count].to_vec()));
                    }
                });
                tokio::spawn(async move {
                    while let Some((at, bytes)) = late.recv().await {
                        tokio::time::sleep_until(at).await;
                        let _ = to.write_all(&bytes).await;
                    }
                });
            }
        }
    });
    url
}

/// Its first response takes three round trips: for CONNECT, for TLS, and for the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_proxy_has_time_to_connect() {
    let place = Place::new().await;
    let proxy = slow(tls(&place.local).await, Duration::from_millis(250)).await;
    let command = |arguments: &[&str]| {
        let mut command = place.command();
        command.env("AWS_ENDPOINT_URL_DYNAMODB", "https://dynamodb.example.test").env("HTTPS_PROXY", &proxy);
        command
            .env("AWS_CA_BUNDLE", certificate("authority.pem"))
            .env_remove("LOCK_REQUEST_TIMEOUT_MS")
            .args(arguments);
        command
    };

    let run = end(&mut command(&["run", "k", "--", "true"])).await;
    let acquired = end(&mut command(&["acquire", "k"])).await;
    let shown = end(&mut command(&["show", "k"])).await;
    let hasty = end(&mut command(&["show", "k", "--request-timeout-ms", "1000"])).await;

    run.done();
    acquired.done();
    shown.done();
    assert!(hasty.code() == 69 && hasty.err.contains("no response within"), "{hasty:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_says_why_there_was_no_response() {
    let place = Place::new().await;
    let port = tls(&place.local).await;
    let odd = Server::answering(|_| (503, "<html>busy</html>".to_owned())).await;
    let fails = |_: &str| (500, r#"{"__type":"InternalServerError","message":"it went wrong"}"#.to_owned());
    let fails = Server::answering_with("x-amzn-requestid: R1\r\n", fails).await;
    for (endpoint, why) in [
        ("http://127.0.0.1:1", "Connection refused"),
        ("http://no-such-host.invalid", "no-such-host.invalid, or the proxy to it, is not found: check the Region"),
        (&format!("https://localhost:{port}"), "certificate"),
        (&odd.endpoint, "unexpected token '<'"),
        (&fails.endpoint, "it went wrong"),
    ] {
        let all = [&["ls"][..], &["show", "k"], &["doctor"], &["acquire", "k"], &["raise-tokens", "--yes"]];
        for (arguments, ended) in ends_of(&place, endpoint, &all).await {
            assert_eq!(ended.code(), 69, "{endpoint}, {arguments:?}: {ended:?}");
            let said = format!("{}{}", ended.out, ended.err);
            assert!(said.contains(why), "{endpoint}, {arguments:?}: {ended:?}");
        }
    }
}

/// The ends of commands that run beside each other.
async fn ends_of(
    place: &Place,
    endpoint: &str,
    all: &[&'static [&'static str]],
) -> Vec<(&'static [&'static str], Ended)> {
    let mut running = JoinSet::new();
    for arguments in all.iter().copied() {
        let mut command = place.command();
        command.env("AWS_ENDPOINT_URL_DYNAMODB", endpoint).args(arguments);
        running.spawn(async move { (arguments, end(&mut command).await) });
    }
    running.join_all().await
}

/// Otherwise `raise-tokens` would say that there is nothing to raise, and `show` that a lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_not_dynamodbs_is_none() {
    let place = Place::new().await;
    let empty = Server::answering(|_| (200, "{}".to_owned())).await;
    let denied = Server::answering(|_| (400, r#"{"__type":"AccessDeniedException"}"#.to_owned())).await;
    for server in [empty, denied] {
        let all = [
            &["ls"][..],
            &["show", "k"],
            &["doctor"],
            &["acquire", "k"],
            &["break", "k", "--seen", "v", "--reason", "r", "--yes"],
            &["raise-tokens", "--yes"],
            &["history", "k"],
        ];
        for (arguments, ended) in ends_of(&place, &server.endpoint, &all).await {
            assert_eq!(ended.code(), 69, "{arguments:?}: {ended:?}");
            let said = format!("{}{}", ended.out, ended.err);
            assert!(said.contains("no x-amzn-RequestId"), "{arguments:?}: {ended:?}");
        }
    }
}
