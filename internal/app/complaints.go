package app

import (
	"context"
	"sync"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
)

// repeatInterval is how often the same complaint is reported again.
const repeatInterval = 5 * time.Minute

// Complaints remembers, for a while, the last message about each subject, so that the same problem is not reported at
// every attempt. It decides nothing but that.
type Complaints struct {
	mu       sync.Mutex
	messages *utilcache.LRUExpireCache // by subject
}

// NewComplaints makes Complaints.
func NewComplaints() *Complaints { return &Complaints{messages: utilcache.NewLRUExpireCache(100)} }

// IsNews reports whether a message is worth reporting, and remembers it.
func (c *Complaints) IsNews(subject, message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, reported := c.messages.Get(subject); reported && last == message {
		return false
	}
	c.messages.Add(subject, message, repeatInterval)
	return true
}

// HandleWarningHeaderWithContext logs a warning that came with a response of the API server.
func (c *Complaints) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if c.IsNews(text, text) {
		klog.FromContext(ctx).Info("The API server warns: " + text)
	}
}
