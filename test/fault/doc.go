// Package fault looks for failures that nobody has thought of: it runs the built controller against a real API server,
// and injects faults into the connection between them, the processes and the order of events. After each campaign
// everything must be as without them: exactly the wanted Services, no object of others touched, the status correct, no
// Service created or deleted because of a fault, and no request at rest.
//
// A campaign prints its seed. `make fault SEED=n` repeats it; `make fault` runs all campaigns whole, and `make test`
// runs a part of each.
package fault
