package diagnose

import (
	"fmt"
	"time"
)

// Controller is what the Lease of the controller shows, the zero value if it could not be read, or if there is none.
type Controller struct {
	// Namespace and Name are those of the Lease, and Holder is the pod that holds it.
	Namespace, Name, Holder string
	// Renewed is when the Lease was last renewed.
	Renewed time.Time
	// Stopped is whether it is not renewed any more.
	Stopped bool
}

// usualNamespace is where the controller is installed according to its documents.
const usualNamespace = "local-service-system"

// Stops says that the controller does not seem to run, and how to look; "" if it runs, or if that is not known. With a
// zero now it names the time, which stays the same.
func (c *Controller) Stops(now time.Time) string {
	if !c.Stopped {
		return ""
	}
	renewed := "at " + c.Renewed.UTC().Format(time.DateTime) + " UTC"
	if !now.IsZero() {
		renewed = ageOf(now.Sub(c.Renewed)) + " ago"
	}
	return fmt.Sprintf("The controller does not seem to run: Lease %s/%s was last renewed %s. See whether its pods run, "+
		"and in their log what they wait for: kubectl get pods -n %s", c.Namespace, c.Name, renewed, c.Namespace)
}

// waits says what to do while the controller has not acted on a LocalService in a namespace.
func (c *Controller) waits(namespace string) string {
	if c.Name == "" {
		return fmt.Sprintf("The controller has not acted yet. See whether it runs, and whether it watches namespace %s "+
			"(-namespaces): kubectl get pods -n %s", namespace, usualNamespace)
	}
	return fmt.Sprintf("The controller has not acted yet, although it runs. See whether it watches namespace %s "+
		"(-namespaces), and its log: kubectl logs -n %s %s", namespace, c.Namespace, c.Holder)
}
