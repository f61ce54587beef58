use super::{Function, order, order_with};
use lambda_lock_functions::test_support::assert_failure;
use serde_json::{Value, json};

async fn refused(request: Value, says: &str) {
    let function = Function::start().await;
    let message = match function.call(request.clone()).await {
        Err(failure) if failure.error_type() == "InvalidRequest" => failure.message().into_owned(),
        other => panic!("{request}: {other:?}"),
    };
    assert!(message.starts_with(says), "{request}: {message}");
    assert_eq!(function.server.row("once/order/o-1").await, None, "no attempt was started");
}

#[tokio::test]
async fn a_missing_field_is_named() {
    for name in ["orderId", "amount", "currency"] {
        let mut request = order();
        request.as_object_mut().unwrap().remove(name);
        refused(request, &format!("{name} is missing")).await;
    }
    refused(json!([order()]), "the event is no JSON object").await;
}

#[tokio::test]
async fn a_malformed_field_is_named() {
    for (name, values) in [
        ("orderId", vec![json!(""), json!(7), json!(null), json!("x".repeat(1019))]),
        ("amount", vec![json!(0), json!(-1), json!(12.5), json!("1250"), json!(null)]),
        ("currency", vec![json!("eur"), json!("EURO"), json!(""), json!("€"), json!(978)]),
        ("simulate", vec![json!(null), json!(1), json!([])]),
    ] {
        for value in values {
            refused(order_with(json!({ name: value })), &format!("{name} is malformed")).await;
        }
    }
}

#[tokio::test]
async fn an_unknown_field_is_refused() {
    refused(order_with(json!({ "orderID": "o-2" })), "orderID is no field").await;
    refused(order_with(json!({ "simulate": { "sleep": 1 } })), "simulate.sleep is no field").await;
    refused(order_with(json!({ "simulate": { "failAt": "pay" } })), "simulate.failAt is malformed").await;
    refused(order_with(json!({ "simulate": { "crashAt": 1 } })), "simulate.crashAt is malformed").await;
    refused(order_with(json!({ "simulate": { "stepMillis": -1 } })), "simulate.stepMillis is malformed").await;
}

#[tokio::test]
async fn the_longest_permitted_id_can_be_charged() {
    let function = Function::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "sk")]).await;
    let longest = "x".repeat(1018);
    assert_eq!(function.call(order_with(json!({ "orderId": longest }))).await.unwrap()["orderId"], longest);
    let longer = function.call(order_with(json!({ "orderId": format!("{longest}x") }))).await;
    assert_failure(longer, "InvalidRequest", "orderId is malformed");
}
