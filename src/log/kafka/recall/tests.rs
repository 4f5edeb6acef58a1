//! Against a broker made here that says, as it goes, that its cluster has no brokers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::log::kafka::leaders::Leaders;
use crate::log::kafka::member::Member;
use crate::log::kafka::shared::Shared;
use crate::log::kafka::{Options, Producer};

const UP: u8 = 0;
/// Answers that there are no brokers, and hangs up.
const LEAVING: u8 = 1;
const DOWN: u8 = 2;

const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
const UNSUPPORTED_VERSION: i16 = 35;
/// So many are in the answer without brokers that the connection is down before the answer is read.
const TOPICS: i32 = 20_000;
/// Largest Metadata version answered.
const METADATA_VERSION: i16 = 1;

/// A broker that knows of two requests.
struct Broker {
    address: String,
    mode: AtomicU8,
    /// Metadata answers that named it.
    named: AtomicUsize,
    /// Metadata answers without a broker.
    empty: AtomicUsize,
}

impl Broker {
    fn start() -> Arc<Broker> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let broker = Arc::new(Broker {
            address,
            mode: AtomicU8::new(UP),
            named: AtomicUsize::new(0),
            empty: AtomicUsize::new(0),
        });
        let serving = broker.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let broker = serving.clone();
                thread::spawn(move || while broker.answer(&stream).is_some() {});
            }
        });
        broker
    }

    /// One request; none when the connection ends.
    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let request = frame(stream)?;
        let number = |at| i16::from_be_bytes([request[at], request[at + 1]]);
        let (api, version) = (number(0), number(2));
        let mode = self.mode.load(Ordering::SeqCst);
        if mode == DOWN {
            return None;
        }
        let mut body = request[4..8].to_vec();
        match api {
            API_VERSIONS => {
                let known = version == 0;
                body.extend(if known { 0 } else { UNSUPPORTED_VERSION }.to_be_bytes());
                body.extend(2_i32.to_be_bytes());
                for (api, most) in [(API_VERSIONS, 0), (METADATA, METADATA_VERSION)] {
                    body.extend([api, 0, most].map(i16::to_be_bytes).concat());
                }
            }
            METADATA if mode == LEAVING => {
                self.empty.fetch_add(1, Ordering::SeqCst);
                body.extend([0_i32, -1, TOPICS].map(i32::to_be_bytes).concat());
                for topic in 0..TOPICS {
                    let name = format!("{topic:0200}");
                    body.extend([0, name.len() as i16].map(i16::to_be_bytes).concat());
                    body.extend(name.as_bytes());
                    body.extend([0; 5]);
                }
            }
            METADATA => {
                self.named.fetch_add(1, Ordering::SeqCst);
                let port: i32 = self.address.rsplit(':').next()?.parse().ok()?;
                body.extend([1_i32, 1].map(i32::to_be_bytes).concat());
                body.extend(9_i16.to_be_bytes());
                body.extend(b"127.0.0.1");
                body.extend(port.to_be_bytes());
                body.extend((-1_i16).to_be_bytes());
                body.extend([1_i32, 0].map(i32::to_be_bytes).concat());
            }
            _ => return None,
        }
        stream.write_all(&(body.len() as u32).to_be_bytes()).ok()?;
        stream.write_all(&body).ok()?;
        (mode == UP || api != METADATA).then_some(())
    }

    fn named(&self) -> usize {
        self.named.load(Ordering::SeqCst)
    }

    /// Goes away saying that nobody is there, and comes back.
    fn leave_and_come_back(&self) {
        until("the broker is known", || self.named() > 0);
        self.mode.store(LEAVING, Ordering::SeqCst);
        until("somebody hears that there are no brokers", || self.empty.load(Ordering::SeqCst) > 0);
        self.mode.store(DOWN, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(500));
        self.named.store(0, Ordering::SeqCst);
        self.mode.store(UP, Ordering::SeqCst);
    }

    fn options(&self) -> Options {
        let mut options = Options::new(self.address.clone(), "recall", "one");
        options.librdkafka.insert("topic.metadata.refresh.interval.ms".into(), "200".into());
        options
    }
}

fn frame(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_producer_finds_a_cluster_again_that_said_it_had_no_brokers() {
    let broker = Broker::start();
    let producer = Producer::start(broker.options()).expect("good options");
    broker.leave_and_come_back();
    until("the producer is back", || broker.named() > 0);
    drop(producer);
}

#[test]
fn a_member_finds_a_cluster_again_that_said_it_had_no_brokers() {
    let (broker, of_leaders) = (Broker::start(), Broker::start());
    let shared = Arc::new(Shared::new(1 << 20));
    let leaders = Leaders::start(&of_leaders.options()).expect("good options");
    Member::start(broker.options(), shared.clone(), leaders).expect("good options");
    broker.leave_and_come_back();
    until("the member is back", || broker.named() > 0);
    shared.close();
}
