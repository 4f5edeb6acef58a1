//! The router: a process that holds a device in every place, takes each packet, and hands it to the place it is for, later or
//! never, as the link between them says.
//!
//! A thread for each device reads; another writes what is due. Packets of one link keep their order: none overtakes another,
//! whatever the jitter. What a link is like can be changed over a socket at any time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tun_rs::{DeviceBuilder, SyncDevice};

use super::link::Link;
use super::network::{DEVICE, Namespace};
use super::plan::{self, Place};
use super::state::Cluster;
use crate::servers::process::Identity;

/// Larger than any packet of the devices.
const PACKET_BYTES_MAX: usize = 10_000;
/// Bytes that wait for one place; packets beyond are dropped, as routers do.
const WAITING_BYTES_MAX: usize = 64 << 20;
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
const ANSWER_POLL: Duration = Duration::from_millis(20);

/// What the process is told when it starts.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where it is asked; no other process has this argument
    #[arg(long)]
    socket: PathBuf,
    /// The namespaces of home, dc1, dc2 and dc3
    #[arg(long, num_args = 4)]
    namespaces: Vec<String>,
}

/// Starts the process and waits until it answers.
pub(super) fn start(cluster: &Cluster) -> Result<Identity> {
    let socket = cluster.socket();
    crate::servers::state::remove_file(&socket)?;
    let log = cluster.join("router.log");
    let log = std::fs::File::create(&log).with_context(|| format!("{}", log.display()))?;
    let marker = socket.display().to_string();
    let program = std::env::current_exe().context("the path of this program")?;
    let child = Command::new("setsid")
        .arg(program)
        .args(["cluster", "router", "--socket", &marker, "--namespaces"])
        .args(Place::ALL.map(|place| cluster.namespace(place).0))
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("sharing the log")?)
        .stderr(log)
        .spawn()
        .context("starting the router")?;
    let identity = Identity::of(i32::try_from(child.id())?, marker)?;
    let begun = Instant::now();
    while let Err(error) = ask(&socket, &[]) {
        ensure!(identity.alive(), "the router ended: see {}", cluster.join("router.log").display());
        if begun.elapsed() > ANSWER_WAIT_MAX {
            identity.kill()?;
            return Err(error).context("the router does not answer");
        }
        std::thread::sleep(ANSWER_POLL);
    }
    Ok(identity)
}

/// Changes links, and says how all of them are then.
pub(super) fn ask(socket: &Path, changes: &[Link]) -> Result<Vec<Link>> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("the router at {}", socket.display()))?;
    stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
    let mut line = serde_json::to_vec(changes)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    serde_json::from_str(&answer).context("the router's answer")
}

/// The life of the process.
pub(super) fn run(options: &Options) -> Result<()> {
    let mut ports = Vec::new();
    for (place, name) in Place::ALL.into_iter().zip(&options.namespaces) {
        let namespace = Namespace(name.clone());
        let device =
            namespace.within(|| DeviceBuilder::new().name(DEVICE).build_sync().context("a TUN device"))?;
        let source = plan::hosts(place).first().copied().context("a place has addresses")?;
        namespace.route(source)?;
        ports.push(Port { device, waiting: Mutex::default(), changed: Condvar::new() });
    }
    let router = Arc::new(Router { ports, links: Mutex::new(all_links()) });
    for place in Place::ALL {
        let (reads, writes) = (router.clone(), router.clone());
        std::thread::spawn(move || or_end(reads.read(place)));
        std::thread::spawn(move || or_end(writes.write(place)));
    }
    let listener =
        UnixListener::bind(&options.socket).with_context(|| format!("{}", options.socket.display()))?;
    for stream in listener.incoming() {
        if let Err(error) = router.answer(stream?) {
            crate::say::line(format_args!("a question: {error:#}"));
        }
    }
    Ok(())
}

fn all_links() -> Vec<Link> {
    Place::ALL.into_iter().flat_map(|from| Place::ALL.map(|to| Link::plain(from, to))).collect()
}

/// Without one of its threads the process is of no use, and `up` sees that it has ended.
fn or_end(ended: Result<()>) {
    if let Err(error) = ended {
        crate::say::line(format_args!("error: {error:#}"));
    }
    std::process::exit(1);
}

struct Router {
    ports: Vec<Port>,
    links: Mutex<Vec<Link>>,
}

/// The way into one place.
struct Port {
    device: SyncDevice,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Packets that are not due yet, the first on top: by time, then by number.
#[derive(Default)]
struct Waiting {
    packets: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    bytes: usize,
    number: u64,
}

/// What a link did last.
#[derive(Clone, Copy)]
struct Used {
    /// No packet arrives before this: the one before it does not.
    arrives: Instant,
    /// Its bandwidth is used up until then.
    busy: Instant,
}

impl Router {
    fn answer(&self, stream: UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let changes: Vec<Link> = serde_json::from_str(&line)?;
        let links = {
            let mut links = lock(&self.links);
            for change in changes {
                links[index(change.from, change.to)] = change;
            }
            links.clone()
        };
        let mut answer = serde_json::to_vec(&links)?;
        answer.push(b'\n');
        (&stream).write_all(&answer).context("answering")
    }

    /// Takes what leaves a place.
    fn read(&self, from: Place) -> Result<()> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let now = Instant::now();
        let mut used = [Used { arrives: now, busy: now }; Place::ALL.len()];
        let mut dice = Dice(u64::from(from.number()) + 1);
        loop {
            let length = self.port(from).device.recv(&mut buffer).context("reading packets")?;
            let packet = &buffer[..length];
            let Some(to) = destination(packet) else { continue };
            let link = lock(&self.links)[index(from, to)];
            if link.cut || dice.next() * 1_000.0 < link.loss_permille {
                continue;
            }
            let used = &mut used[usize::from(to.number())];
            let at = used.due(Instant::now(), &link, length, dice.next());
            self.port(to).put(at, packet);
        }
    }

    /// Brings what is due into a place.
    fn write(&self, to: Place) -> Result<()> {
        let port = self.port(to);
        loop {
            let packet = port.next();
            // A place whose interface is down takes nothing: as a network would, it drops what comes.
            let _ = port.device.send(&packet);
        }
    }

    fn port(&self, place: Place) -> &Port {
        &self.ports[usize::from(place.number())]
    }
}

impl Used {
    /// When a packet that comes now arrives; `chance` from 0 to 1 is its part of the jitter.
    fn due(&mut self, now: Instant, link: &Link, bytes: usize, chance: f64) -> Instant {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1_000.0);
        let sent = match link.mbit {
            Some(mbit) => self.busy.max(now) + Duration::from_secs_f64(bytes as f64 * 8.0 / (mbit * 1e6)),
            None => now,
        };
        self.busy = sent;
        self.arrives = self.arrives.max(sent + ms(link.delay_ms) + ms(link.jitter_ms * chance));
        self.arrives
    }
}

impl Port {
    fn put(&self, at: Instant, packet: &[u8]) {
        let mut waiting = lock(&self.waiting);
        if waiting.bytes + packet.len() > WAITING_BYTES_MAX {
            return;
        }
        waiting.bytes += packet.len();
        waiting.number += 1;
        let number = waiting.number;
        waiting.packets.push(Reverse((at, number, packet.to_vec())));
        self.changed.notify_one();
    }

    /// Waits for the next packet that is due.
    fn next(&self) -> Vec<u8> {
        let mut waiting = lock(&self.waiting);
        loop {
            let first = waiting.packets.peek().map(|Reverse((at, ..))| *at);
            let wait = match first.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => {
                    if let Some(Reverse((_, _, packet))) = waiting.packets.pop() {
                        waiting.bytes -= packet.len();
                        return packet;
                    }
                    continue;
                }
                Some(wait) => wait,
                None => Duration::from_secs(60),
            };
            waiting = self.changed.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Where an IPv4 packet goes; everything else is nobody's.
fn destination(packet: &[u8]) -> Option<Place> {
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    is_v4.then(|| Place::of_address(address)).flatten()
}

fn index(from: Place, to: Place) -> usize {
    usize::from(from.number()) * Place::ALL.len() + usize::from(to.number())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A small generator (splitmix64, Steele and others 2014), for losses and jitter.
struct Dice(u64);

impl Dice {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(delay_ms: f64, jitter_ms: f64, mbit: Option<f64>) -> Link {
        Link { delay_ms, jitter_ms, mbit, ..Link::plain(Place::Dc1, Place::Dc2) }
    }

    #[test]
    fn packets_of_a_link_take_its_delay_and_keep_their_order() {
        let now = Instant::now();
        let mut used = Used { arrives: now, busy: now };
        let late = used.due(now, &link(10.0, 5.0, None), 100, 1.0);
        assert_eq!(late - now, Duration::from_millis(15));
        let next = used.due(now + Duration::from_millis(1), &link(10.0, 5.0, None), 100, 0.0);
        assert_eq!(next, late, "it would have come before the one before it");
    }

    #[test]
    fn bandwidth_is_shared_by_the_packets_of_a_link() {
        let now = Instant::now();
        let mut used = Used { arrives: now, busy: now };
        let slow = link(0.0, 0.0, Some(8.0));
        assert_eq!(used.due(now, &slow, 1_000, 0.0) - now, Duration::from_millis(1));
        assert_eq!(used.due(now, &slow, 1_000, 0.0) - now, Duration::from_millis(2));
    }

    #[test]
    fn only_packets_for_a_place_go_on() {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&[10, 77, 2, 31]);
        assert_eq!(destination(&packet), Some(Place::Dc2));
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
        assert_eq!(destination(&packet[..10]), None);
    }

    #[test]
    fn chances_lie_between_zero_and_one_and_differ() {
        let mut dice = Dice(1);
        let drawn: Vec<f64> = (0..1_000).map(|_| dice.next()).collect();
        assert!(drawn.iter().all(|one| (0.0..1.0).contains(one)));
        let mean = drawn.iter().sum::<f64>() / 1_000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
