/// \file  How much memory a run will hold, foreseen from shapes alone, and whether the machine has it. What is counted
/// must be there at the same time at the worst moment; pages of mapped files are told apart, the system can drop them
/// and read them again. Checked against measurement (docs/results.md): an estimate, kept above 0.9 of what a run takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/system/machine.h"
#include "models/causal_lm.h"

namespace evenkeel {

struct MemoryPart {
  std::string what;  ///< "activations of micro-batches of up to 2048 tokens at once"
  int64_t bytes = 0;
  std::string lower;  ///< the keys that make it smaller; empty: nothing does
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  int64_t mapped = 0;  ///< bytes of files that are mapped as they are

  int64_t needed() const;  ///< sum of the parts
};

enum class MemoryVerdict {
  kFits,
  kTight,  ///< fits, with less than a tenth to spare, or mapped pages will be read again and again
  kTooLarge,
};
MemoryVerdict verdict(const MemoryPlan& plan, const machine::Memory& memory);

/// One line for people: how much is needed, how much there is, what takes most and which key lowers it.
std::string told(const MemoryPlan& plan, const machine::Memory& memory);

/// Warns when it is tight. \throws kConfig with told() when `who` cannot fit.
void require_memory(const MemoryPlan& plan, const machine::Memory& memory, std::string_view who);

/// A micro-batch through the model, with K experts per token.
struct PassShape {
  int64_t tokens = 0;   ///< T, of all sequences together
  int64_t targets = 0;  ///< rows that reach the head
  int64_t top_k = 0;    ///< 0 on a dense model
  int64_t threads = 1;
};

/// What a training pass keeps for its backward, float32: per token and layer the normalised inputs, queries, keys and
/// values as they are projected, attention's output, and of each of the K experts two inner rows (TokenWork::kept).
int64_t kept_bytes(const ModelSpec& spec, const PassShape& pass);
/// The same of the engine aten, which keeps more beside each expert's inner rows: gathered inputs and products.
int64_t kept_bytes_of_operators(const ModelSpec& spec, const PassShape& pass);
/// What a pass needs besides: rows on their way to and from the experts, workspaces of the threads, logits by the
/// chunk.
int64_t passing_bytes(const ModelSpec& spec, const PassShape& pass);
/// Keys and values of `tokens`, all sequences together; of several sequences of as many each.
int64_t cache_bytes(const KvShape& shape, int64_t tokens);
int64_t cache_bytes(const ModelSpec& spec, int64_t sequences, int64_t tokens, KvType type = KvType::kExact);

}  // namespace evenkeel
