//! Plays the library to the scenarios of `tests/conformance`: calls in, answers out, one JSON object a line.
//!
//! The line protocol is that of `tests/conformance/README.md`. It decides nothing: no retry, no limit of its own.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use ticketing::{Ticket, TicketBroker, TicketError, TlsMode};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

type Work = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

enum Failure {
    Library(TicketError),
    /// The call cannot be understood.
    Driver(String),
}

impl From<TicketError> for Failure {
    fn from(error: TicketError) -> Self {
        Self::Library(error)
    }
}

/// A call under way: its future, until it is done or dropped.
struct Call {
    work: Arc<Mutex<Option<Work>>>,
    task: AbortHandle,
}

#[derive(Default)]
struct Driver {
    brokers: Mutex<HashMap<u64, TicketBroker>>,
    tickets: Mutex<HashMap<u64, Arc<Ticket>>>,
    calls: Mutex<HashMap<u64, Call>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(line: &Value) {
    let mut output = std::io::stdout().lock();
    // Nobody listens any more: the end of the input follows.
    drop(writeln!(output, "{line}").and_then(|()| output.flush()));
}

fn answer(id: &Value, result: Result<Value, Failure>) {
    say(&match result {
        Ok(ok) => json!({"id": id, "ok": ok}),
        Err(Failure::Driver(message)) => json!({"id": id, "error": "driver", "message": message}),
        Err(Failure::Library(error)) => {
            let mut line = json!({"id": id, "error": error.kind().as_str(), "message": error.to_string()});
            if let TicketError::InvalidInput { field, value, range } = error {
                line["field"] = field.into();
                line["value"] = value.into();
                line["range"] = range.into();
            }
            line
        }
    });
}

fn number(call: &Value, name: &str) -> Result<u64, Failure> {
    call[name].as_u64().ok_or_else(|| Failure::Driver(format!("{name}: a whole number of 0 or more is wanted")))
}

fn text<'a>(call: &'a Value, name: &str) -> Result<&'a str, Failure> {
    call[name].as_str().ok_or_else(|| Failure::Driver(format!("{name}: a text is wanted")))
}

fn time(call: &Value, name: &str) -> Result<Duration, Failure> {
    number(call, name).map(Duration::from_millis)
}

impl Driver {
    fn broker(&self, call: &Value) -> Result<TicketBroker, Failure> {
        let id = number(call, "broker")?;
        locked(&self.brokers).get(&id).cloned().ok_or_else(|| Failure::Driver(format!("there is no broker {id}")))
    }

    fn ticket(&self, call: &Value) -> Result<Arc<Ticket>, Failure> {
        let id = number(call, "ticket")?;
        locked(&self.tickets).get(&id).cloned().ok_or_else(|| Failure::Driver(format!("there is no ticket {id}")))
    }

    fn connect(&self, call: &Value) -> Result<Value, Failure> {
        let tls = match call["tls"].as_str().unwrap_or("off") {
            "off" => TlsMode::Off,
            "system-roots" => TlsMode::SystemRoots,
            "insecure-skip-verify" => TlsMode::InsecureSkipVerify,
            path => TlsMode::Ca(path.into()),
        };
        let addrs = call["addrs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let broker = TicketBroker::builder()
            .addrs(addrs.iter().map(|address| address.as_str().unwrap_or_default()))
            .token(call["token"].as_str().unwrap_or_default())
            .tls(tls)
            .name(call["name"].as_str().unwrap_or_default())
            .connect()?;
        locked(&self.brokers).insert(number(call, "id")?, broker);
        Ok(json!({}))
    }

    async fn acquire(&self, call: &Value) -> Result<Value, Failure> {
        let broker = self.broker(call)?;
        let (wait, lease) = (time(call, "wait_ms")?, time(call, "lease_ms")?);
        let ticket = broker.acquire(text(call, "key")?, wait, lease, time(call, "budget_ms")?).await?;
        let ok = json!({"token": ticket.token().to_string(), "key": ticket.key(), "domain": ticket.domain()});
        locked(&self.tickets).insert(number(call, "id")?, Arc::new(ticket));
        Ok(ok)
    }

    /// Drops the future of a call under way, which is answered as well.
    fn drop_call(&self, call: &Value) -> Result<Value, Failure> {
        let id = number(call, "call")?;
        if let Some(dropped) = locked(&self.calls).remove(&id) {
            let mut work = locked(&dropped.work);
            if work.take().is_some() {
                say(&json!({"id": id, "error": "dropped", "message": "its future was dropped"}));
            }
            dropped.task.abort();
        }
        Ok(json!({}))
    }

    /// Tasks and threads of the process, those that serve calls not counted.
    fn tasks(&self) -> Value {
        let calls = locked(&self.calls).values().filter(|call| !call.task.is_finished()).count();
        let tasks = Handle::current().metrics().num_alive_tasks().saturating_sub(calls);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse::<usize>().ok());
        json!({"tasks": tasks + threads.unwrap_or(0)})
    }

    async fn do_call(self: Arc<Self>, call: Value) -> Result<Value, Failure> {
        match text(&call, "do")? {
            "connect" => self.connect(&call),
            "wait_ready" => {
                let ready = self.broker(&call)?.try_wait_ready(time(&call, "timeout_ms")?).await?;
                Ok(json!({"ready": ready}))
            }
            "acquire" => self.acquire(&call).await,
            "drop" => self.drop_call(&call),
            "release" => Ok(json!({"released": self.ticket(&call)?.release().await?})),
            "extend" => {
                let lease = if call["lease_ms"].is_null() { None } else { Some(time(&call, "lease_ms")?) };
                Ok(json!({"extended": self.ticket(&call)?.extend(lease).await?}))
            }
            "abandon" => {
                let ticket = self.ticket(&call)?;
                locked(&self.tickets).remove(&number(&call, "ticket")?);
                drop(ticket);
                Ok(json!({}))
            }
            "remaining" => {
                let remaining = self.ticket(&call)?.conservative_remaining();
                Ok(json!({"seconds": remaining.as_secs_f64()}))
            }
            "lost" => Ok(json!({"lost": self.ticket(&call)?.lost()})),
            "wait_lost" => Ok(json!({"lost": self.ticket(&call)?.wait_lost().await})),
            "close" => {
                self.broker(&call)?.close().await;
                Ok(json!({}))
            }
            "leave" => {
                let broker = self.broker(&call)?;
                locked(&self.brokers).remove(&number(&call, "broker")?);
                drop(broker);
                Ok(json!({}))
            }
            "tasks" => Ok(self.tasks()),
            other => Err(Failure::Driver(format!("'{other}' is nothing that can be done"))),
        }
    }

    /// Begins a call: it gets as far as it can before the next one is read.
    fn begin(self: &Arc<Self>, call: Value) {
        let id = call["id"].clone();
        let mut work: Work = Box::pin(self.clone().do_call(call));
        if let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer(&id, result);
        }
        let work = Arc::new(Mutex::new(Some(work)));
        let (driver, shared, number) = (self.clone(), work.clone(), id.as_u64().unwrap_or(0));
        let mut calls = locked(&self.calls);
        let task = tokio::spawn(async move {
            std::future::poll_fn(|context| {
                let mut work = locked(&shared);
                let Some(under_way) = work.as_mut() else { return Poll::Ready(()) };
                match under_way.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(result) => {
                        *work = None;
                        answer(&id, result);
                        Poll::Ready(())
                    }
                }
            })
            .await;
            locked(&driver.calls).remove(&number);
        });
        calls.insert(number, Call { work, task: task.abort_handle() });
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (lines, mut calls) = mpsc::channel::<String>(1024);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    say(&json!({"ready": true, "library": "rust"}));
    let driver = Arc::new(Driver::default());
    while let Some(line) = calls.recv().await {
        match serde_json::from_str::<Value>(&line) {
            Ok(call) if call["do"] == "return" => return answer(&call["id"], Ok(json!({}))),
            Ok(call) => driver.begin(call),
            Err(error) => answer(&Value::Null, Err(Failure::Driver(format!("no JSON: {error}")))),
        }
    }
    let brokers: Vec<TicketBroker> = locked(&driver.brokers).values().cloned().collect();
    for broker in brokers {
        broker.close().await;
    }
}
