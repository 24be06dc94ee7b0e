// Package fault looks for what nobody has thought of: it runs the built controller against a real API server, and has
// the connection between them, the processes and the order of events go wrong. After each campaign everything must be
// as if nothing had: exactly the wanted Services, nothing of others touched, the status true, no Service created or
// deleted that would not have been without the fault, and no request at rest.
//
// A campaign prints its seed. `make fault SEED=n` repeats it; `make fault` runs the whole of all campaigns, and
// `make test` a part of each.
package fault
