//! Any bytes as a file: sums or one error, never a panic, and no more memory than the file has.

use crate::files::{HEADER, llama, safetensors};
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_estimate::{
    EstimateError, GgufHeader, ModelFacts, ModelShape, ModelWorkload, ShardIndex, read_safetensors,
};

/// An error is one short text that names the file.
fn clear<T>(result: Result<T, EstimateError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("file: ") && text.len() < 4096, "one clear error: {text}");
            None
        }
    }
}

/// Reads bytes as each kind of file, and estimates what they say.
fn read_all(bytes: &[u8], work: &ModelWorkload) {
    let estimate = |facts: ModelFacts| _ = facts.estimate("file", work);
    if let Some(tensors) = clear(read_safetensors("file", bytes, Some(bytes.len() as u64))) {
        estimate(ModelFacts { shape: None, tensors: Some(tensors) });
    }
    if let Some(header) = clear(GgufHeader::read("file", bytes)) {
        estimate(ModelFacts { shape: header.shape, tensors: Some(header.tensors) });
    }
    if let Some((shape, _)) = clear(ModelShape::from_config("file", bytes)) {
        estimate(ModelFacts { shape: Some(shape), tensors: None });
    }
    clear(ShardIndex::read("file", bytes));
}

/// Good files: each reader gets past its first bytes.
fn good(kind: usize) -> Vec<u8> {
    let config = r#"{"model_type": "mixtral", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2}"#;
    match kind {
        0 => safetensors(HEADER, 68),
        1 => llama().0,
        _ => config.as_bytes().to_vec(),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_sums_or_one_error(bytes in vec(any::<u8>(), 0..200)) {
        read_all(&bytes, &ModelWorkload::inference(9));
    }

    #[test]
    fn changed_files_are_sums_or_one_error(
        kind in 0..3usize,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
        batch in any::<u64>(),
        context in any::<u64>(),
    ) {
        let mut bytes = good(kind);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_all(&bytes, &ModelWorkload { batch, ..ModelWorkload::inference(context) });
    }

    #[test]
    fn numbers_of_a_config_are_counted_or_refused(
        numbers in prop::array::uniform7(prop_oneof![0..300u64, any::<u64>(), Just(u64::MAX), Just(1 << 22)]),
        batch in any::<u64>(),
        context in any::<u64>(),
    ) {
        let [vocab, hidden, layers, heads, kv, width, experts] = numbers;
        let config = format!(r#"{{"vocab_size": {vocab}, "hidden_size": {hidden}, "num_hidden_layers": {layers},
            "num_attention_heads": {heads}, "num_key_value_heads": {kv}, "intermediate_size": {width},
            "num_experts": {experts}, "num_experts_per_tok": 1, "head_dim": 8}}"#);
        if let Some((shape, _)) = clear(ModelShape::from_config("file", config.as_bytes())) {
            let facts = ModelFacts { shape: Some(shape), tensors: None };
            _ = facts.estimate("file", &ModelWorkload { batch, ..ModelWorkload::inference(context) });
            let one = facts.estimate("file", &ModelWorkload::inference(1));
            prop_assert!(one.is_ok_and(|one| one.total_bytes >= one.weights_bytes) || layers * experts > 1 << 20);
        }
    }
}

/// A stream without end, as a device file: each reader stops.
#[test]
fn files_without_an_end_are_refused() {
    struct Endless(u8);
    impl std::io::Read for Endless {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            bytes.fill(self.0);
            Ok(bytes.len())
        }
    }
    assert!(ModelShape::from_config("file", Endless(b' ')).unwrap_err().what.contains("more than 16777216 bytes"));
    assert!(ShardIndex::read("file", Endless(b' ')).unwrap_err().what.contains("more than"));
    assert!(read_safetensors("file", Endless(255), None).unwrap_err().what.contains("at most 100000000"));
    // A list of numbers that never ends, behind a good beginning.
    let mut list = crate::files::Gguf::new(0, 1);
    list.text("other").number(9, 4).number(8, 4).number(1 << 28, 8);
    let endless = std::io::Read::chain(&list.0[..], Endless(0));
    let error = GgufHeader::read("file", endless).unwrap_err();
    assert!(error.what.contains("beyond 268435456 bytes"), "{error}");
}
