/// \file  Estimates the memory of a run from shapes, and compares it with the memory of the machine.
/// The estimate is the sum of all parts that are needed at the same time at the peak. Pages of mapped files are counted
/// separately, because the system can drop them and read them again. The estimate is at least 0.9 of the measured
/// memory (docs/results.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/system/machine.h"
#include "models/causal_lm.h"

namespace evenkeel::models {

/// One part of an estimate.
struct MemoryPart {
  std::string what;  ///< description, as in "activations of micro-batches of up to 2048 tokens at once"
  int64_t bytes = 0;
  std::string lower;  ///< config keys that reduce the part when their values are lowered; empty: none
};

/// An estimate.
struct MemoryPlan {
  std::vector<MemoryPart> parts;
  int64_t mapped = 0;  ///< bytes of files that are mapped unchanged

  int64_t needed() const;  ///< sum of the parts in bytes
};
/// Returns the plan of `ranks` processes of a cluster that share one memory and need `plan` each.
MemoryPlan of_ranks(MemoryPlan plan, int64_t ranks);

/// Result of comparing an estimate with a machine.
enum class MemoryVerdict {
  kFits,
  kTight,  ///< less than a tenth of the memory is left, or pages of mapped files will be dropped and read again
  kTooLarge,
};
/// Compares an estimate with the available memory and address space.
MemoryVerdict verdict(const MemoryPlan& plan, const machine::Memory& memory);

/// Returns one line for users: the needed and the available memory, the largest part that a key can reduce, and that
/// key.
std::string memory_report(const MemoryPlan& plan, const machine::Memory& memory);

/// Logs a warning when memory is tight.
/// \param who  beginning of the message, e.g. "pre-training"
/// \throws kConfig with the line of memory_report() when the estimate does not fit
void require_memory(const MemoryPlan& plan, const machine::Memory& memory, std::string_view who);
/// Compares an estimate with the free memory of a GPU as require_memory() does. With several ranks on the GPU, the
/// estimate of all of them is compared with the whole memory first, because the other ranks may already use some of it.
/// Does nothing for the CPU.
/// \param who  what needs the memory, e.g. "pre-training" \param ranks  processes of the run on this GPU
void require_device_memory(const MemoryPlan& plan, c10::Device device, std::string_view who, int64_t ranks = 1);

/// Returns the memory of a GPU that a process needs beside its tensors: the CUDA context, kernels and workspaces.
MemoryPart device_libraries();

/// Describes one pass of a micro-batch through the model.
struct PassShape {
  int64_t tokens = 0;                  ///< T, tokens of all sequences together
  int64_t targets = 0;                 ///< rows that the head is applied to
  int64_t top_k = 0;                   ///< K, experts per token; 0 on a dense model
  int64_t threads = 1;                 ///< threads that compute the pass, each with a workspace
  int64_t sequences = 0, longest = 0;  ///< sequences, and tokens of the longest; for padded_attention_bytes()
};

/// Returns the bytes that a training pass saves for its backward pass, in float32: per token and layer the normalised
/// inputs, projected queries, keys and values, the attention output, and two inner rows for each of the K experts
/// (TokenWork::kept).
int64_t kept_bytes(const ModelSpec& spec, const PassShape& pass);
/// Works as kept_bytes() for engine aten, which also saves one row of the model's width per token and selected expert.
int64_t kept_bytes_of_operators(const ModelSpec& spec, const PassShape& pass);
/// Returns the bytes of temporary buffers of a pass: rows sent to and from experts, workspaces of threads, and logits
/// in chunks.
int64_t passing_bytes(const ModelSpec& spec, const PassShape& pass);
/// Returns the bytes that attention of engine aten on a processor saves beside kept_bytes(): queries, keys, values and
/// outputs, padded to the longest sequence, and with a soft cap also matrices of scores.
int64_t padded_attention_bytes(const ModelSpec& spec, const PassShape& pass);
/// Works as passing_bytes() for engine aten on a processor. Its experts hold four rows of the model's width and five
/// inner rows per token and selected expert in their backward pass, and hardly fewer in a forward pass.
int64_t passing_bytes_of_operators(const ModelSpec& spec, const PassShape& pass);
/// Returns the bytes of keys and values of `tokens` tokens, all sequences together.
int64_t cache_bytes(const nn::KvShape& shape, int64_t tokens);
/// Returns the bytes of keys and values of `sequences` sequences of `tokens` tokens each.
int64_t cache_bytes(const ModelSpec& spec, int64_t sequences, int64_t tokens, nn::KvType type = nn::KvType::kExact);

}  // namespace evenkeel::models
