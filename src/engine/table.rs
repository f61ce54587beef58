//! Creates the lock table where nothing else does, and reports precisely what is wrong with it.

use super::Engine;
use super::error::{BoxError, Error, ErrorKind, kind_of};
use super::fault::{cause_of, fault_of_error, fault_of_unsent, with_table_name};
use super::interceptor::{TransmissionInterceptor, observed};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, MultiRegionConsistency, ScalarAttributeType,
    TableDescription, TableStatus, TimeToLiveDescription, TimeToLiveSpecification, TimeToLiveStatus,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use lambda_lock_protocol::{Fault, Schema};
use std::pin::pin;
use std::time::Duration;

/// How long a new table may take to become active.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

pub(crate) async fn create(engine: &Engine) -> Result<(), Error> {
    let schema = &engine.settings.schema;
    let dynamodb = client(engine);
    tracing::info!(table = engine.table, "creating the lock table");
    let create = dynamodb
        .create_table()
        .table_name(&engine.table)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(definitions(schema)?))
        .set_key_schema(Some(key_schema(schema)?));
    let (created, transmission) = observed(pin!(create.send())).await;
    match created {
        Ok(_) => {}
        Err(error) if error.code() == Some("ResourceInUseException") => {
            tracing::info!(table = engine.table, "the lock table exists already");
        }
        Err(error) => return Err(failure(engine, "created", error, transmission.sent)),
    }
    let table = wait_until_active(engine, &dynamodb).await?;
    // Only on a lock table, where TTL is off: on any other table it would delete somebody else's items.
    if let Some(ttl) = &schema.ttl
        && findings(engine, &table).is_empty()
        && is_ttl_off(&ttl_of(engine, &dynamodb).await?)
    {
        tracing::info!(table = engine.table, attribute = ttl.attribute, "switching on TTL");
        let specification = TimeToLiveSpecification::builder().attribute_name(&ttl.attribute).enabled(true).build();
        let specification = specification.map_err(incomplete)?;
        let switched = dynamodb.update_time_to_live().table_name(&engine.table);
        asked(engine, "given a TTL", switched.time_to_live_specification(specification).send()).await?;
    }
    check(engine).await
}

/// A client as the caller has configured it, with the SDK's retries. It is made when it is needed: few programs ask
/// anything about the table.
pub(crate) fn client(engine: &Engine) -> Client {
    Client::from_conf(Builder::clone(&engine.config).interceptor(TransmissionInterceptor).build())
}

/// Waits for a request about the table.
pub(crate) async fn asked<T, E>(
    engine: &Engine,
    what: &str,
    request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, Error>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let (answered, transmission) = observed(pin!(request)).await;
    answered.map_err(|error| failure(engine, what, error, transmission.sent))
}

pub(crate) async fn check(engine: &Engine) -> Result<(), Error> {
    let dynamodb = client(engine);
    let table = describe(engine, &dynamodb).await?;
    let mut findings = findings(engine, &table);
    if !is_strong(&table) {
        let written = engine.settings.schema.ttl.as_ref().map(|ttl| ttl.attribute.as_str());
        findings.extend(ttl_finding(written, &ttl_of(engine, &dynamodb).await?));
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Table,
        format!("the table {:?} cannot be used as it is: {}", engine.table, findings.join("; ")),
    ))
}

async fn wait_until_active(engine: &Engine, dynamodb: &Client) -> Result<TableDescription, Error> {
    let started = engine.clock.now();
    loop {
        let status = match describe(engine, dynamodb).await {
            Ok(table) if table.table_status == Some(TableStatus::Active) => return Ok(table),
            Ok(table) => table.table_status,
            // The description is eventually consistent: DynamoDB may not find a table that was just created.
            Err(error) if error.kind() == ErrorKind::Table => None,
            Err(error) => return Err(error),
        };
        if engine.clock.now().longest_since(started) > PATIENCE {
            return Err(Error::new(
                ErrorKind::Table,
                format!(
                    "the table {:?} is not active after {PATIENCE:?}: its status is {}",
                    engine.table,
                    status_name(status.as_ref())
                ),
            ));
        }
        tracing::info!(table = engine.table, status = status_name(status.as_ref()), "waiting for the lock table");
        engine.clock.sleep(BETWEEN_LOOKS).await;
    }
}

async fn describe(engine: &Engine, dynamodb: &Client) -> Result<TableDescription, Error> {
    let described = asked(engine, "described", dynamodb.describe_table().table_name(&engine.table).send()).await?;
    described.table.ok_or_else(|| {
        Error::new(ErrorKind::Table, format!("DynamoDB describes the table {:?} as nothing", engine.table))
    })
}

async fn ttl_of(engine: &Engine, dynamodb: &Client) -> Result<Option<TimeToLiveDescription>, Error> {
    let describe = dynamodb.describe_time_to_live().table_name(&engine.table);
    Ok(asked(engine, "asked for its TTL", describe.send()).await?.time_to_live_description)
}

/// Everything in which a table differs from what the client expects.
fn findings(engine: &Engine, table: &TableDescription) -> Vec<String> {
    let schema = &engine.settings.schema;
    let mut findings = Vec::new();
    // A table that is being updated still serves requests.
    if !matches!(table.table_status, Some(TableStatus::Active | TableStatus::Updating)) {
        findings.push(format!("its status is {}, not ACTIVE", status_name(table.table_status.as_ref())));
    }
    let key = |kind: &KeyType| {
        let element = table.key_schema().iter().find(|element| element.key_type() == kind);
        element.map(KeySchemaElement::attribute_name)
    };
    findings.extend(key_finding("partition key", Some(&schema.key_attribute), key(&KeyType::Hash), table));
    findings.extend(key_finding("sort key", schema.sort_key_attribute.as_ref(), key(&KeyType::Range), table));
    findings.extend(consistency_finding(engine, table));
    findings.extend(inactive_parts(table));
    findings
}

/// What the consistency of a global table means for locks and for TTL. Other tables have no replicas.
fn consistency_finding(engine: &Engine, table: &TableDescription) -> Option<String> {
    if is_strong(table) {
        let ttl = &engine.settings.schema.ttl.as_ref()?.attribute;
        return Some(format!(
            "it is replicated with strong consistency, which has no TTL, but this client writes {ttl:?}: idle rows \
             would stay forever"
        ));
    }
    let replicas: Vec<_> = table.replicas().iter().filter_map(|replica| replica.region_name()).collect();
    (!table.replicas().is_empty() && !engine.one_home_region).then(|| {
        format!(
            "it is a global table with eventual consistency (replicas in {}), so two Regions can acquire the same \
             lock: use a table with strong consistency, or set one_home_region if each key is only ever locked from \
             one Region",
            replicas.join(", ")
        )
    })
}

fn is_strong(table: &TableDescription) -> bool {
    table.multi_region_consistency() == Some(&MultiRegionConsistency::Strong)
}

/// The replicas and the witness that do not do their part. A replica that is being updated does.
fn inactive_parts(table: &TableDescription) -> impl Iterator<Item = String> {
    let replicas = table.replicas().iter();
    let replicas =
        replicas.filter_map(|replica| Some(("replica", replica.region_name()?, replica.replica_status()?.as_str())));
    let witnesses = table.global_table_witnesses().iter();
    let witnesses =
        witnesses.filter_map(|witness| Some(("witness", witness.region_name()?, witness.witness_status()?.as_str())));
    let inactive = replicas.chain(witnesses).filter(|(.., status)| !matches!(*status, "ACTIVE" | "UPDATING"));
    inactive.map(|(what, region, status)| format!("its {what} in {region} is {status}, not ACTIVE"))
}

fn key_finding(what: &str, wanted: Option<&String>, found: Option<&str>, table: &TableDescription) -> Option<String> {
    match (wanted, found) {
        (None, None) => None,
        (Some(wanted), None) => Some(format!("it has no {what}, but this client expects {wanted:?}")),
        (None, Some(found)) => Some(format!("it has the {what} {found:?}, but this client expects none")),
        (Some(wanted), Some(found)) if wanted != found => {
            Some(format!("its {what} is called {found:?}, but this client expects {wanted:?}"))
        }
        (Some(_), Some(found)) => {
            let definition = table.attribute_definitions().iter().find(|own| own.attribute_name() == found)?;
            let kind = definition.attribute_type();
            (*kind != ScalarAttributeType::S).then(|| format!("its {what} {found:?} is of type {kind}, not S"))
        }
    }
}

fn ttl_finding(written: Option<&str>, found: &Option<TimeToLiveDescription>) -> Option<String> {
    let on = found.as_ref().filter(|ttl| {
        matches!(ttl.time_to_live_status(), Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
    });
    match (written, on.and_then(TimeToLiveDescription::attribute_name)) {
        (None, None) => None,
        (Some(written), Some(on)) if written == on => None,
        (Some(written), Some(on)) => Some(format!("its TTL attribute is {on:?}, but this client writes {written:?}")),
        (Some(written), None) => Some(format!(
            "its TTL is not switched on, but this client writes {written:?}: idle rows would stay forever"
        )),
        (None, Some(on)) => Some(format!(
            "its TTL attribute is {on:?}, but this client does not write it: DynamoDB would delete rows by what others \
             wrote there, also while this client holds the lock; set ttl_attribute"
        )),
    }
}

fn is_ttl_off(found: &Option<TimeToLiveDescription>) -> bool {
    let status = found.as_ref().and_then(TimeToLiveDescription::time_to_live_status);
    matches!(status, None | Some(TimeToLiveStatus::Disabled))
}

fn key_schema(schema: &Schema) -> Result<Vec<KeySchemaElement>, Error> {
    let element = |name: &String, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().map_err(incomplete)
    };
    let sort_key = schema.sort_key_attribute.as_ref().map(|name| element(name, KeyType::Range));
    std::iter::once(element(&schema.key_attribute, KeyType::Hash)).chain(sort_key).collect()
}

fn definitions(schema: &Schema) -> Result<Vec<AttributeDefinition>, Error> {
    let names = std::iter::once(&schema.key_attribute).chain(&schema.sort_key_attribute);
    let definition = |name: &String| {
        let builder = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
        builder.build().map_err(incomplete)
    };
    names.map(definition).collect()
}

fn incomplete(error: aws_sdk_dynamodb::error::BuildError) -> Error {
    Error::new(ErrorKind::Table, "the table's definition is incomplete".to_owned()).because(Some(Box::new(error)))
}

fn status_name(status: Option<&TableStatus>) -> &str {
    status.map_or("unknown", TableStatus::as_str)
}

/// The error for a request about the table that failed.
fn failure<E>(engine: &Engine, what: &str, error: SdkError<E, HttpResponse>, was_sent: bool) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let fault = match fault_of_error(&error) {
        Fault::Unknown if !was_sent => fault_of_unsent(&error),
        fault => with_table_name(&engine.table, fault),
    };
    let cause: Option<BoxError> = Some(cause_of(Some(&fault), error));
    let table = &engine.table;
    match fault {
        Fault::Rejected(rejection) => Error::new(kind_of(&rejection), rejection.text(&[])),
        Fault::Throttled => Error::new(
            ErrorKind::Unavailable,
            format!("the table {table:?} was not {what}: DynamoDB throttled or refused the requests for now; retry later"),
        ),
        Fault::Unknown => Error::new(
            ErrorKind::Unknown,
            format!(
                "outcome unknown: DynamoDB gave no usable response in time, so the table {table:?} may or may not have been \
                 {what}; retry the call"
            ),
        ),
    }
    .because(cause)
}
