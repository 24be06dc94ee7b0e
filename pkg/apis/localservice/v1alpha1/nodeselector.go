package v1alpha1

import corev1 "k8s.io/api/core/v1"

// NodeSelectorTerm selects nodes: all of its expressions and fields must match.
//
// +kubebuilder:validation:XValidation:rule="has(self.matchExpressions) && size(self.matchExpressions) > 0 || has(self.matchFields) && size(self.matchFields) > 0",message="a term without matchExpressions and matchFields matches no node, as on a pod; add one, or remove the term"
type NodeSelectorTerm struct {
	// matchExpressions are about the labels of a node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []NodeLabelRequirement `json:"matchExpressions,omitempty"`

	// matchFields are about the name of a node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchFields []NodeFieldRequirement `json:"matchFields,omitempty"`
}

// NodeLabelRequirement is about one label of a node.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0",message="the operators In and NotIn need values; add one"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",message="the operators Exists and DoesNotExist look at the key only; remove values, or use In or NotIn"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt']) || has(self.values) && size(self.values) == 1 && self.values[0].matches('^[0-9]{1,18}$')",message="the operators Gt and Lt compare whole numbers: values must have one, in quotes"
type NodeLabelRequirement struct {
	// key of the label.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="no label can have this key; a key is a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	Key string `json:"key"`

	// operator is In (the label has one of the values), NotIn (it has none of them, or the node has no such label),
	// Exists, DoesNotExist, Gt or Lt (the label is a whole number greater or less than the value).
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
	Operator corev1.NodeSelectorOperator `json:"operator"`

	// values to compare the label with: at least one for In and NotIn, one for Gt and Lt, otherwise none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(v, !format.labelValue().validate(v).hasValue())",message="no label can have one of these values; a value has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
	Values []string `json:"values,omitempty"`
}

// NodeFieldRequirement is about the name of a node.
type NodeFieldRequirement struct {
	// key is metadata.name: nodes have no other field to select by.
	// +required
	// +kubebuilder:validation:Enum=metadata.name
	Key string `json:"key"`

	// operator is In or NotIn.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn
	Operator corev1.NodeSelectorOperator `json:"operator"`

	// values has the one name to compare with, as on a pod. For several nodes, use several terms.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(v, !format.dns1123Subdomain().validate(v).hasValue())",message="no node can have this name; a name has lower case letters, digits, '-' and '.'"
	Values []string `json:"values"`
}
