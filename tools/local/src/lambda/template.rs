//! Reads functions and tables from a SAM template, with values for this machine.
//!
//! Of a function it reads the binary, timeout, memory and variables, including those under `Globals`. It
//! resolves `Ref`, `Fn::GetAtt`, `Fn::If` and `Fn::Sub` in both notations: parameters to their defaults, and
//! resources to names and ARNs of this machine. Conditions are decided by these. Resources are there whatever their
//! conditions are.

use super::{ACCOUNT, Function, REGION, arn};
use anyhow::{Context, bail};
use serde_json::Value as Json;
use serde_norway::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FUNCTION: &str = "AWS::Serverless::Function";
const TABLE: &str = "AWS::DynamoDB::Table";
/// The properties of a table that `CreateTable` accepts.
const CREATE_TABLE: [&str; 5] =
    ["AttributeDefinitions", "KeySchema", "BillingMode", "GlobalSecondaryIndexes", "LocalSecondaryIndexes"];
/// What stands for a value that is left out.
const NO_VALUE: &str = "AWS::NoValue";
/// The defaults of SAM and Lambda.
const DEFAULT_TIMEOUT: u32 = 3;
const DEFAULT_MEMORY: u32 = 128;

/// A SAM template.
#[derive(Clone, Debug)]
pub struct Template {
    document: Value,
}

impl Template {
    /// Reads a template from a file.
    ///
    /// # Errors
    /// Returns an error if there is no such file, or if it is not YAML.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("there is no template {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a template", path.display()))
    }

    /// Reads a template from a text.
    ///
    /// # Errors
    /// Returns an error if it is not YAML.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self { document: serde_norway::from_str(text)? })
    }

    /// Returns the names of the functions' binaries, which are also the names of their packages.
    ///
    /// # Errors
    /// Returns an error if a function is not built by `cargo lambda`.
    pub fn binaries(&self) -> anyhow::Result<Vec<String>> {
        self.of_type(FUNCTION).map(|(id, resource)| binary(id, resource)).collect()
    }

    /// Returns the functions whose binaries were built. They have the names of their binaries, unless the
    /// template names them.
    ///
    /// `built` has the paths of the binaries. `dynamodb` is the endpoint that the functions get as
    /// `AWS_ENDPOINT_URL_DYNAMODB`. They get it as `AWS_ENDPOINT_URL_SFN` too: it refuses what it does not know, and no
    /// request leaves this machine.
    ///
    /// # Errors
    /// Returns an error if a value cannot be resolved here.
    pub fn functions(&self, built: &BTreeMap<String, PathBuf>, dynamodb: &str) -> anyhow::Result<Vec<Function>> {
        let mut functions = Vec::new();
        for (id, resource) in self.of_type(FUNCTION) {
            let Some(binary) = built.get(&binary(id, resource)?) else { continue };
            let mut environment = self.environment(&resource["Properties"]).with_context(|| id.to_owned())?;
            for service in ["DYNAMODB", "SFN"] {
                environment.insert(format!("AWS_ENDPOINT_URL_{service}"), dynamodb.to_owned());
            }
            // Nothing here charges anybody.
            environment.insert("ALLOW_SIMULATE".to_owned(), "true".to_owned());
            functions.push(Function {
                name: self.name(id, resource)?,
                binary: binary.clone(),
                environment,
                timeout: Duration::from_secs(self.number(resource, "Timeout", DEFAULT_TIMEOUT)?.into()),
                memory_mb: self.number(resource, "MemorySize", DEFAULT_MEMORY)?,
                ..Function::default()
            });
        }
        Ok(functions)
    }

    /// Returns the variables that the template gives to every function.
    ///
    /// # Errors
    /// Returns an error if a value cannot be resolved here.
    pub fn shared_environment(&self) -> anyhow::Result<BTreeMap<String, String>> {
        self.environment(&Value::Null)
    }

    /// Returns the template's tables, each as a request of `CreateTable`. They have their logical ids as
    /// names, unless the template names them.
    ///
    /// # Errors
    /// Returns an error if a value cannot be resolved here.
    pub fn tables(&self) -> anyhow::Result<Vec<Json>> {
        let tables = self.of_type(TABLE);
        tables.map(|(id, resource)| self.table(id, resource).with_context(|| format!("table {id}"))).collect()
    }

    fn table(&self, id: &str, resource: &Value) -> anyhow::Result<Json> {
        let properties = entries(&resource["Properties"]).filter(|(name, _)| CREATE_TABLE.contains(name));
        let properties = properties.map(|(name, value)| Ok((name.to_owned(), self.resolved(value)?)));
        let name = ("TableName".to_owned(), Json::String(self.name(id, resource)?));
        std::iter::once(Ok(name)).chain(properties).collect::<anyhow::Result<_>>().map(Json::Object)
    }

    /// Resolves a list or an object in which every value is text.
    fn resolved(&self, value: &Value) -> anyhow::Result<Json> {
        match value {
            Value::Sequence(values) => values.iter().map(|one| self.resolved(one)).collect(),
            Value::Mapping(_) if !entries(value).any(|(name, _)| name == "Ref" || name.starts_with("Fn::")) => {
                let entries = entries(value).map(|(name, one)| Ok((name.to_owned(), self.resolved(one)?)));
                entries.collect::<anyhow::Result<_>>().map(Json::Object)
            }
            _ => self.text(value).map(Json::String),
        }
    }

    /// Returns the variables of all functions and a function's own.
    fn environment(&self, properties: &Value) -> anyhow::Result<BTreeMap<String, String>> {
        let global = &self.document["Globals"]["Function"]["Environment"]["Variables"];
        let own = &properties["Environment"]["Variables"];
        let mut variables = BTreeMap::new();
        for (name, value) in entries(global).chain(entries(own)) {
            variables.insert(name.to_owned(), self.text(value).context(name.to_owned())?);
        }
        variables.retain(|_, value| value != NO_VALUE);
        Ok(variables)
    }

    /// Returns a function's own number, or that of all functions.
    fn number(&self, resource: &Value, name: &str, default: u32) -> anyhow::Result<u32> {
        let own = resource["Properties"].get(name).or_else(|| self.document["Globals"]["Function"].get(name));
        own.map_or(Ok(default), |value| self.text(value)?.parse().with_context(|| name.to_owned()))
    }

    fn of_type<'a>(&'a self, type_: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        entries(&self.document["Resources"]).filter(move |(_, resource)| resource["Type"].as_str() == Some(type_))
    }

    /// Returns the name of a resource on this machine.
    fn name(&self, id: &str, resource: &Value) -> anyhow::Result<String> {
        let properties = &resource["Properties"];
        let given =
            ["FunctionName", "TableName", "QueueName", "Name"].into_iter().find_map(|name| properties.get(name));
        match (given, resource["Type"].as_str()) {
            (Some(given), _) => self.text(given),
            (None, Some(FUNCTION)) => binary(id, resource),
            (None, _) => Ok(id.to_owned()),
        }
    }

    /// Resolves a value to text.
    fn text(&self, value: &Value) -> anyhow::Result<String> {
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(truth) => Ok(truth.to_string()),
            Value::Tagged(tagged) => {
                let tag = tagged.tag.to_string();
                self.called(tag.trim_start_matches('!'), &tagged.value)
            }
            Value::Mapping(mapping) if mapping.len() == 1 => match entries(value).next() {
                Some((name, argument)) => self.called(name.trim_start_matches("Fn::"), argument),
                None => bail!("{value:?} is not a text"),
            },
            _ => bail!("{value:?} is not a text"),
        }
    }

    /// Returns the result of one of CloudFormation's functions.
    fn called(&self, function: &str, argument: &Value) -> anyhow::Result<String> {
        match (function, argument) {
            ("Ref", Value::String(id)) => self.reference(id),
            ("GetAtt", Value::String(path)) => self.attribute(path),
            ("GetAtt", Value::Sequence(path)) => {
                let path = path.iter().map(|part| self.text(part)).collect::<anyhow::Result<Vec<_>>>()?;
                self.attribute(&path.join("."))
            }
            ("If", Value::Sequence(parts)) => match parts.as_slice() {
                [Value::String(condition), if_true, if_false] => {
                    self.text(if self.is_true(condition)? { if_true } else { if_false })
                }
                _ => bail!("Fn::If has a condition and two values"),
            },
            ("Sub", Value::String(text)) => self.substituted(text, &Value::Null),
            ("Sub", Value::Sequence(both)) => match both.as_slice() {
                [Value::String(text), variables] => self.substituted(text, variables),
                _ => bail!("Fn::Sub needs a text and its variables"),
            },
            _ => bail!("{function} cannot be resolved here"),
        }
    }

    /// Whether a condition of the template holds. One that is not there counts as true.
    fn is_true(&self, name: &str) -> anyhow::Result<bool> {
        let Some(condition) = self.document["Conditions"].get(name) else { return Ok(true) };
        self.holds(condition).with_context(|| format!("the condition {name}"))
    }

    fn holds(&self, condition: &Value) -> anyhow::Result<bool> {
        let (function, argument) = match condition {
            Value::Tagged(tagged) => (tagged.tag.to_string(), &tagged.value),
            _ => match entries(condition).next() {
                Some((name, argument)) => (name.to_owned(), argument),
                None => bail!("{condition:?} cannot be decided here"),
            },
        };
        let function = function.trim_start_matches('!').trim_start_matches("Fn::");
        match (function, argument) {
            ("Condition", Value::String(name)) => self.is_true(name),
            ("Equals", Value::Sequence(both)) if both.len() == 2 => Ok(self.text(&both[0])? == self.text(&both[1])?),
            ("Not", Value::Sequence(one)) if one.len() == 1 => Ok(!self.holds(&one[0])?),
            ("And", Value::Sequence(all)) => all.iter().try_fold(true, |so_far, one| Ok(so_far & self.holds(one)?)),
            ("Or", Value::Sequence(any)) => any.iter().try_fold(false, |so_far, one| Ok(so_far | self.holds(one)?)),
            _ => bail!("{function} cannot be decided here"),
        }
    }

    fn reference(&self, id: &str) -> anyhow::Result<String> {
        match id {
            "AWS::Region" => return Ok(REGION.to_owned()),
            "AWS::AccountId" => return Ok(ACCOUNT.to_owned()),
            "AWS::Partition" => return Ok("aws".to_owned()),
            "AWS::URLSuffix" => return Ok("amazonaws.com".to_owned()),
            "AWS::StackName" => return Ok("local".to_owned()),
            NO_VALUE => return Ok(NO_VALUE.to_owned()),
            _ => {}
        }
        if let Some(parameter) = self.document["Parameters"].get(id) {
            return self.text(parameter.get("Default").with_context(|| format!("parameter {id} has no default"))?);
        }
        let resource = self.resource(id)?;
        let name = self.name(id, resource)?;
        match resource["Type"].as_str() {
            Some("AWS::SQS::Queue") => Ok(format!("https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}")),
            Some("AWS::Serverless::StateMachine" | "AWS::StepFunctions::StateMachine") => {
                self.attribute(&format!("{id}.Arn"))
            }
            _ => Ok(name),
        }
    }

    fn attribute(&self, path: &str) -> anyhow::Result<String> {
        let (id, attribute) = path.split_once('.').with_context(|| format!("{path} does not name an attribute"))?;
        let resource = self.resource(id)?;
        let name = self.name(id, resource)?;
        let local = |service: &str, what: &str| format!("arn:aws:{service}:{REGION}:{ACCOUNT}:{what}{name}");
        match (resource["Type"].as_str().unwrap_or_default(), attribute) {
            (FUNCTION, "Arn") => Ok(arn(&name)),
            (TABLE, "Arn") => Ok(local("dynamodb", "table/")),
            ("AWS::SQS::Queue", "Arn") => Ok(local("sqs", "")),
            ("AWS::SQS::Queue", "QueueName") => Ok(name),
            ("AWS::Serverless::StateMachine" | "AWS::StepFunctions::StateMachine", "Arn") => {
                Ok(local("states", "stateMachine:"))
            }
            (type_, _) => bail!("{attribute} of {id}, a {type_}, is not known here"),
        }
    }

    /// Replaces `${Name}` and `${Name.Attribute}`. `${!Name}` becomes the literal `${Name}`.
    fn substituted(&self, text: &str, variables: &Value) -> anyhow::Result<String> {
        let mut pieces = text.split("${");
        let mut substituted = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (name, rest) = piece.split_once('}').with_context(|| format!("an end is missing in {text:?}"))?;
            let value = match (variables.get(name), name.strip_prefix('!'), name.contains('.')) {
                (Some(value), ..) => self.text(value)?,
                (None, Some(literal), _) => format!("${{{literal}}}"),
                (None, None, true) => self.attribute(name)?,
                (None, None, false) => self.reference(name)?,
            };
            substituted.push_str(&value);
            substituted.push_str(rest);
        }
        Ok(substituted)
    }

    fn resource(&self, id: &str) -> anyhow::Result<&Value> {
        self.document["Resources"].get(id).with_context(|| format!("there is no {id}"))
    }
}

fn binary(id: &str, resource: &Value) -> anyhow::Result<String> {
    let binary = resource["Metadata"]["BuildProperties"]["Binary"].as_str();
    binary.map(str::to_owned).with_context(|| format!("{id} has no Metadata.BuildProperties.Binary"))
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_mapping().into_iter().flatten().filter_map(|(name, value)| Some((name.as_str()?, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalDynamoDb, client};

    const TEMPLATE: &str = r#"
Parameters:
  Stage: { Type: String, Default: test }
  Unset: { Type: String }
Globals:
  Function:
    MemorySize: 512
    Timeout: 7
    Environment:
      Variables:
        LOCK_TABLE: !Ref Locks
        STAGE: !Ref Stage
Resources:
  Locks:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions:
        - { AttributeName: key, AttributeType: S }
        - { AttributeName: workflow, AttributeType: S }
      KeySchema: [{ AttributeName: key, KeyType: HASH }]
      GlobalSecondaryIndexes:
        - IndexName: byWorkflow
          KeySchema: [{ AttributeName: workflow, KeyType: HASH }]
          Projection: { ProjectionType: KEYS_ONLY }
  First:
    Type: AWS::Serverless::Function
    Metadata: { BuildMethod: rust-cargolambda, BuildProperties: { Binary: first } }
    Properties:
      Timeout: 30
      Environment:
        Variables:
          STAGE: !Sub "${Stage}/${Locks.Arn}/${!Literal}/${AWS::Region}"
          OTHER: { "Fn::GetAtt": [Second, Arn] }
          EITHER: !If [SomeCondition, !Ref Locks, !Ref Nothing]
          NOTHING: !If [SomeCondition, !Ref AWS::NoValue, 7]
          NUMBER: 5
  Second:
    Type: AWS::Serverless::Function
    Metadata: { BuildMethod: rust-cargolambda, BuildProperties: { Binary: second } }
    Properties: { FunctionName: !Sub "the-${N}-one" }
"#;

    fn built() -> BTreeMap<String, PathBuf> {
        ["first", "second"].map(|name| (name.to_owned(), PathBuf::from(name))).into()
    }

    #[test]
    fn a_function_has_its_own_values_and_else_the_global_ones() {
        let template = Template::parse(&TEMPLATE.replace("${N}", "second")).unwrap();
        assert_eq!(template.binaries().unwrap(), ["first", "second"]);
        let functions = template.functions(&built(), "http://here").unwrap();
        let [first, second] = &functions[..] else { panic!("{functions:?}") };
        assert_eq!((first.name.as_str(), second.name.as_str()), ("first", "the-second-one"));
        assert_eq!((first.timeout, second.timeout), (Duration::from_secs(30), Duration::from_secs(7)));
        assert_eq!((first.memory_mb, second.memory_mb), (512, 512));
        assert_eq!(second.environment["STAGE"], "test");
        assert_eq!(second.environment["LOCK_TABLE"], "Locks");
        assert_eq!(second.environment["AWS_ENDPOINT_URL_DYNAMODB"], "http://here");
        assert_eq!(second.environment["AWS_ENDPOINT_URL_SFN"], "http://here");
        let locks = "arn:aws:dynamodb:eu-central-1:123456789012:table/Locks";
        assert_eq!(first.environment["STAGE"], format!("test/{locks}/${{Literal}}/eu-central-1"));
        assert_eq!(first.environment["OTHER"], arn("the-second-one"));
        assert_eq!(first.environment["EITHER"], "Locks");
        assert_eq!(first.environment["NUMBER"], "5");
        assert!(!first.environment.contains_key("NOTHING"));
    }

    #[test]
    fn conditions_are_decided_by_the_defaults_of_parameters() {
        let conditions = r#"
Conditions:
  IsTest: !Equals [!Ref Stage, test]
  IsNot: !Not [!Condition IsTest]
  Both: !And [!Condition IsTest, !Equals [1, 2]]
  Either: { "Fn::Or": [{ Condition: IsNot }, { "Fn::Equals": [a, a] }] }
"#;
        for (condition, chosen) in [("IsTest", "yes"), ("IsNot", "no"), ("Both", "no"), ("Either", "yes")] {
            let text = TEMPLATE.replace("${N}", "second");
            let text = text.replace("NUMBER: 5", &format!("NUMBER: !If [{condition}, 'yes', 'no']"));
            let template = Template::parse(&format!("{text}{conditions}")).unwrap();
            let functions = template.functions(&built(), "http://here").unwrap();
            assert_eq!(functions[0].environment["NUMBER"], chosen, "{condition}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_resolved_is_named() {
        for (variable, named) in [
            ("!Ref Unset", "parameter Unset has no default"),
            ("!Ref Nothing", "there is no Nothing"),
            ("!GetAtt Locks.StreamArn", "StreamArn of Locks"),
            ("!ImportValue x", "ImportValue cannot be resolved here"),
            ("!If [SomeCondition, a]", "Fn::If has a condition and two values"),
            ("[a]", "is not a text"),
        ] {
            let text = TEMPLATE.replace("${N}", "second").replace("NUMBER: 5", &format!("NUMBER: {variable}"));
            let error = Template::parse(&text).unwrap().functions(&built(), "http://here").unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains("First: NUMBER: ") && error.contains(named), "{error}");
        }
    }

    #[tokio::test]
    async fn the_tables_are_created_with_their_keys_and_indexes() {
        let server = LocalDynamoDb::in_memory().await.unwrap();
        let dynamodb = client(server.endpoint());
        let tables = Template::parse(TEMPLATE).unwrap().tables().unwrap();
        assert_eq!(server.create_tables(&tables).await.unwrap(), ["Locks"]);
        let table = dynamodb.describe_table().table_name("Locks").send().await.unwrap().table.unwrap();
        assert_eq!(table.key_schema()[0].attribute_name(), "key");
        assert_eq!(table.global_secondary_indexes()[0].index_name(), Some("byWorkflow"));
    }

    #[tokio::test]
    async fn the_project_s_own_template_can_be_run() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
        let template = Template::read(&path).unwrap();
        let built = template.binaries().unwrap().into_iter().map(|name| (name.clone(), PathBuf::from(name))).collect();
        let server = LocalDynamoDb::in_memory().await.unwrap();
        let tables = server.create_tables(&template.tables().unwrap()).await.unwrap();
        for function in template.functions(&built, server.endpoint()).unwrap() {
            assert!(tables.contains(&function.environment["LOCK_TABLE"]), "{function:?}");
        }
    }
}
