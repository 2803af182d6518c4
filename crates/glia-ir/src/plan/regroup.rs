//! The order of nodes for several backends: as given, unless another order that obeys every dependence leaves fewer
//! regions. Nodes are pure, and a state belongs to one node, so nothing but values ties one node to another.

use std::collections::BTreeSet;

use super::assign::Assigned;
use crate::graph::{Graph, Node, NodeId, ValueSource};

/// An order of the nodes that leaves fewer regions than the given one, if there is; `assigned` says who runs each.
pub(super) fn order(graph: &Graph, assigned: &[Assigned], n_backends: usize) -> Option<Vec<NodeId>> {
    let backend = |id: &NodeId| assigned[id.index()].backend;
    let n_regions = |order: &[NodeId]| order.chunk_by(|a, b| backend(a) == backend(b)).count();
    let given: Vec<NodeId> = graph.iter_nodes().map(|(id, _)| id).collect();
    let used: BTreeSet<usize> = given.iter().map(backend).collect();
    let mut least = n_regions(&given);
    // As many regions as backends cannot be bettered.
    if least <= used.len() {
        return None;
    }
    let followers = followers(graph);
    let mut best = None;
    for first in used {
        let order = greedy(&followers, assigned, first, n_backends);
        if n_regions(&order) < least {
            least = n_regions(&order);
            best = Some(order);
        }
    }
    best
}

/// For each node, the nodes that read it, each once.
fn followers(graph: &Graph) -> Vec<BTreeSet<NodeId>> {
    let readers = graph.readers();
    let of = |node: &Node| {
        node.outputs
            .iter()
            .flat_map(|v| readers[v.index()].iter().copied())
            .collect()
    };
    graph.nodes.iter().map(of).collect()
}

/// As many nodes on one backend as can run before the next is asked, beginning with `first`. Among those that can run,
/// the given order is kept.
fn greedy(followers: &[BTreeSet<NodeId>], assigned: &[Assigned], first: usize, n_backends: usize) -> Vec<NodeId> {
    // Of how many other nodes each still waits for a value.
    let mut waits = vec![0usize; followers.len()];
    for reader in followers.iter().flatten() {
        waits[reader.index()] += 1;
    }
    let mut ready: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); n_backends];
    for id in (0..followers.len() as u32).map(NodeId) {
        if waits[id.index()] == 0 {
            ready[assigned[id.index()].backend].insert(id);
        }
    }
    let (mut order, mut backend) = (Vec::with_capacity(followers.len()), first);
    loop {
        while let Some(id) = ready[backend].pop_first() {
            order.push(id);
            for reader in &followers[id.index()] {
                let left = &mut waits[reader.index()];
                *left -= 1;
                if *left == 0 {
                    ready[assigned[reader.index()].backend].insert(*reader);
                }
            }
        }
        // Where the oldest node waits.
        let oldest = (0..n_backends).filter_map(|b| Some((*ready[b].first()?, b))).min();
        match oldest {
            Some((_, next)) => backend = next,
            None => return order,
        }
    }
}

/// The graph with its nodes in this order.
pub(super) fn reorder(graph: &Graph, order: &[NodeId]) -> Graph {
    let mut at = vec![NodeId(0); order.len()];
    for (new, old) in (0..).map(NodeId).zip(order) {
        at[old.index()] = new;
    }
    let mut graph = graph.clone();
    graph.nodes = order.iter().map(|&id| graph.node(id).clone()).collect();
    for value in &mut graph.values {
        if let ValueSource::Node { node, .. } = &mut value.source {
            *node = at[node.index()];
        }
    }
    graph
}
