// Package simulation runs controllers in a simulated world: an API server in this process, in virtual time, with the
// users, nodes, pods and controllers of a cluster around it, and everything that can go wrong between them. Only tests
// import it.
//
// A History says what happens in such a world. Play carries one out, inside a bubble of testing/synctest, and returns
// what went wrong: an oracle, which shares no code with the controllers' decisions, knows the desired state.
package simulation
