//! Schedule events, three encodings, to the model.
