//! The store on Cassandra.
