"""The parts of a `Memory`: each public operation is a pair of twins that run one plan."""
