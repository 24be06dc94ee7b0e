package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// curve is how something grows.
type curve struct {
	Name, Title, X, Y string // Name is that of the file
	Logarithmic       bool   // the axis of X; that of Y is always linear and from 0, so that twice as high is twice as much
	Lines             []line
	xs                []float64
}

type line struct {
	Name string
	ys   []float64
}

// add adds a value of each line.
func (c *curve) add(x float64, ys ...float64) {
	c.xs = append(c.xs, x)
	for i, y := range ys {
		c.Lines[i].ys = append(c.Lines[i].ys, y)
	}
}

// The size of a drawing, and of its margins.
const (
	width, height            = 640, 360
	left, right, top, bottom = 64, 24, 44, 52
)

var colours = []string{"#1f6feb", "#8c959f", "#bf8700"}

// svg draws the curve.
func (c *curve) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#57606a">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15" fill="#1f2328">%s</text>`+"\n", left, html.EscapeString(c.Title))
	maxY := 0.0
	for _, l := range c.Lines {
		maxY = max(maxY, niceMax(l.ys))
	}
	x, xTicks := c.scaleX()
	y := func(v float64) float64 { return height - bottom - v/maxY*(height-top-bottom) }
	for _, v := range evenly(maxY) {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#d0d7de"/>`+"\n", left, width-right, y(v), y(v))
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-8, y(v)+4, number(v))
	}
	for _, v := range xTicks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(v), height-bottom+18, number(v))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-10, html.EscapeString(c.X))
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, top-8, html.EscapeString(c.Y))
	for i, l := range c.Lines {
		colour := colours[i%len(colours)]
		c.draw(&b, l, colour, x, y)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", width-right, 16+16*i, colour, html.EscapeString(l.Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// scaleX returns where a value of X is drawn, and the values that are written below the axis.
func (c *curve) scaleX() (x func(v float64) float64, ticks []float64) {
	const space = width - left - right
	if !c.Logarithmic || len(c.xs) < 2 {
		highest := niceMax(c.xs)
		return func(v float64) float64 { return left + v/highest*space }, evenly(highest)
	}
	low, high := math.Log(slices.Min(c.xs)), math.Log(slices.Max(c.xs))
	return func(v float64) float64 { return left + (math.Log(v)-low)/(high-low)*space }, c.xs
}

// evenly divides an axis.
func evenly(highest float64) []float64 {
	const parts = 5
	var ticks []float64
	for i := range parts + 1 {
		ticks = append(ticks, highest*float64(i)/parts)
	}
	return ticks
}

func (c *curve) draw(b *strings.Builder, l line, colour string, x, y func(float64) float64) {
	var points []string
	for i, v := range l.ys {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(c.xs[i]), y(v)))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s</title></circle>`+"\n", x(c.xs[i]), y(v), colour, number(c.xs[i]), number(v))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
}

// niceMax is a round number that is not below any of the values.
func niceMax(values []float64) float64 {
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	if highest == 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(highest)))
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if highest <= factor*unit {
			return factor * unit
		}
	}
	return highest
}
