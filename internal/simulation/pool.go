package simulation

// pool is a range of numbers of which each is allocated once.
type pool struct {
	size int
	used map[int]bool
	next int // as Kubernetes, it does not give out at once what was given back
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
