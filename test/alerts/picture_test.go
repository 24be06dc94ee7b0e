package alerts

import (
	"cmp"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	column = 10 * vg.Millimeter  // of the dashboard's grid, which has 24
	height = 5.5 * vg.Millimeter // of its rows
	margin = 2 * vg.Millimeter
)

// colors are those of Okabe and Ito, which are distinct for people who are red-green color blind.
var colors = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{213, 94, 0, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{120, 120, 120, 255},
	color.RGBA{0, 0, 0, 255},
}

// units has the suffixes of titles, and the divisors of values.
var units = map[string]struct {
	name    string
	divisor float64
}{
	"s": {", seconds", 1}, "ops": {", a second", 1}, "reqps": {", a second", 1}, "bytes": {", MiB", 1 << 20},
	"short": {"", 1},
}

// drawDashboard draws the dashboard as Grafana lays it out.
func drawDashboard(file string, d dashboard, lines map[int][]line, duration time.Duration) error {
	rows := 0
	for _, p := range d.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	width, total := 24*column, vg.Length(rows)*height
	var canvas interface {
		vg.CanvasSizer
		vg.CanvasWriterTo
	}
	if filepath.Ext(file) == ".png" {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, total), vgimg.UseDPI(110))}
	} else {
		canvas = vgsvg.New(width, total)
	}
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	for _, p := range d.Panels {
		at := draw.Crop(whole, vg.Length(p.GridPos.X)*column+margin,
			-(vg.Length(24-p.GridPos.X-p.GridPos.W)*column + margin),
			total-vg.Length(p.GridPos.Y+p.GridPos.H)*height+margin/2, -(vg.Length(p.GridPos.Y)*height + margin/2))
		drawPanel(at, p, lines[p.ID], duration)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func drawPanel(c draw.Canvas, p panel, lines []line, duration time.Duration) {
	plot.DefaultFont.Variant = "Sans"
	pl := plot.New()
	title := pl.Title.TextStyle
	title.Font.Size, title.XAlign, title.YAlign = 10, draw.XLeft, draw.YTop
	if p.Type == "row" {
		title.Font.Size, title.YAlign = 14, draw.YBottom
		c.FillText(title, vg.Point{X: c.Min.X, Y: c.Min.Y}, p.Title)
		return
	}
	unit := units[p.FieldConfig.Defaults.Unit]
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, p.Title+unit.name)
	small := title
	small.Font.Size = 7.5
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.name, b.name) })
	bottom := drawLegend(c, small, lines)
	pl.Add(plotter.NewGrid())
	for i, l := range lines {
		for _, xys := range segments(l.points, unit.divisor) {
			drawn, err := plotter.NewLine(xys)
			if err != nil {
				continue // Of less than two points, which segments has none of.
			}
			drawn.Color, drawn.Width = colors[i%len(colors)], 1.2
			pl.Add(drawn)
		}
	}
	pl.X.Min, pl.X.Max, pl.Y.Min = 0, duration.Minutes(), 0
	pl.Y.Max = max(pl.Y.Max*1.05, 1e-3)
	pl.X.Tick.Marker = plot.TickerFunc(func(_, upTo float64) (ticks []plot.Tick) {
		for minute := 0.0; minute <= upTo; minute++ {
			ticks = append(ticks, plot.Tick{Value: minute, Label: fmt.Sprintf("%.0f min", minute)})
		}
		return ticks
	})
	pl.X.Tick.Label.Font.Size, pl.Y.Tick.Label.Font.Size = 7.5, 7.5
	pl.X.LineStyle.Width, pl.Y.LineStyle.Width = 0.4, 0.4
	pl.X.Tick.LineStyle.Width, pl.Y.Tick.LineStyle.Width = 0.4, 0.4
	pl.BackgroundColor = color.Transparent
	pl.Draw(draw.Crop(c, 0, -2, bottom, -14))
}

// drawLegend draws the names of lines at the bottom, and returns how much room they take.
func drawLegend(c draw.Canvas, style draw.TextStyle, lines []line) vg.Length {
	const lineHeight, dash, gap = 10, 10, 8
	type entry struct {
		x   vg.Length
		row int
	}
	entries, x, row := make([]entry, len(lines)), c.Min.X, 0
	for i, l := range lines {
		width := dash + 3 + style.Width(l.name) + gap
		if x+width > c.Max.X && x > c.Min.X {
			x, row = c.Min.X, row+1
		}
		entries[i] = entry{x, row}
		x += width
	}
	for i, e := range entries {
		y := c.Min.Y + vg.Length(row-e.row)*lineHeight + lineHeight
		stroke := draw.LineStyle{Color: colors[i%len(colors)], Width: 2}
		c.StrokeLine2(stroke, e.x, y-lineHeight/2, e.x+dash, y-lineHeight/2)
		c.FillText(style, vg.Point{X: e.x + dash + 3, Y: y}, lines[i].name)
	}
	return vg.Length(row+1)*lineHeight + 2
}

// segments are the parts of a line without gaps, in minutes.
func segments(points []point, divisor float64) []plotter.XYs {
	var all []plotter.XYs
	for i, p := range points {
		if i == 0 || p.x-points[i-1].x > 1.5*step.Seconds() {
			all = append(all, plotter.XYs{})
		}
		last := &all[len(all)-1]
		if len(*last) == 0 { // One point alone would not be seen.
			*last = append(*last, plotter.XY{X: (p.x - step.Seconds()/2) / 60, Y: p.y / divisor})
		}
		*last = append(*last, plotter.XY{X: p.x / 60, Y: p.y / divisor})
	}
	return all
}
