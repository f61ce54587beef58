//! Sends the requests of a lock through the SDK, without a lock. The size and the time of the `client` component are
//! compared with it.
#![cfg(target_family = "wasm")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, KeysAndAttributes, TransactWriteItem};
use aws_smithy_wasm::wasi::{WasiHttpClientBuilder, WasiSleep};
use bindings::Guest;

mod bindings {
    #![allow(missing_docs, unsafe_code, unreachable_pub, reason = "generated")]
    wit_bindgen::generate!({
        inline: "
            package lambda-lock:bare;
            world bare {
                export read-write-delete: func(endpoint: string, table: string, key: string) -> result<_, string>;
            }
        ",
    });
    use super::Bare;
    export!(Bare);
}

struct Bare;

impl Guest for Bare {
    fn read_write_delete(endpoint: String, table: String, key: String) -> Result<(), String> {
        wstd::runtime::block_on(read_write_delete(&endpoint, &table, &key)).map_err(|error| error.to_string())
    }
}

async fn read_write_delete(endpoint: &str, table: &str, key: &str) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "bare"))
        .endpoint_url(endpoint)
        .http_client(WasiHttpClientBuilder::new().build())
        .sleep_impl(WasiSleep)
        .build();
    let client = Client::from_conf(config);
    let key = AttributeValue::S(key.to_owned());
    client.get_item().table_name(table).key("key", key.clone()).send().await.map_err(text)?;
    let update = client.update_item().table_name(table).key("key", key.clone());
    let update = update.update_expression("SET #n = :n").condition_expression("attribute_not_exists(#n)");
    let update = update.expression_attribute_names("#n", "n");
    update.expression_attribute_values(":n", AttributeValue::N("1".to_owned())).send().await.map_err(text)?;
    let wanted = KeysAndAttributes::builder().keys([("key".to_owned(), key.clone())].into()).consistent_read(true);
    client.batch_get_item().request_items(table, wanted.build().map_err(text)?).send().await.map_err(text)?;
    client.delete_item().table_name(table).key("key", key.clone()).send().await.map_err(text)?;
    let check = ConditionCheck::builder().table_name(table).key("key", key);
    let check = check.condition_expression("attribute_not_exists(n)").build().map_err(text)?;
    let check = TransactWriteItem::builder().condition_check(check).build();
    client.transact_write_items().transact_items(check).send().await.map_err(text)?;
    Ok(())
}

fn text(error: impl std::error::Error) -> String {
    DisplayErrorContext(error).to_string()
}
