package app

import "sync"

// Complaints limits how often controllers report the same problem of different objects. It decides nothing but that.
type Complaints struct {
	mu       sync.Mutex
	reported complaints
}

// NewComplaints makes Complaints.
func NewComplaints() *Complaints { return &Complaints{reported: newComplaints()} }

// IsNews reports whether a problem of a subject was not reported lately, and remembers it.
func (c *Complaints) IsNews(subject, problem string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported.isNews(subject+": "+problem, "")
}
