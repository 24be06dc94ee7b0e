package simulation

// pool is a range of numbers, each of which can be allocated once.
type pool struct {
	size int
	used map[int]bool
	next int // like Kubernetes, it does not immediately reuse what was released
}

func newPool(size int) *pool { return &pool{size: size, used: map[int]bool{}} }

func (p *pool) allocate() (int, bool) {
	for range p.size {
		n := p.next % p.size
		p.next++
		if !p.used[n] {
			p.used[n] = true
			return n, true
		}
	}
	return 0, false
}
