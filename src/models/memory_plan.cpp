#include "models/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/system/device.h"
#include "nn/dense/loss.h"

namespace evenkeel::models {
namespace {

constexpr double kFloat = 4;

/// Converts to bytes with an upper limit. Sizes are multiplied in double, so that a sum beyond 64 bits is merely too
/// large.
int64_t bytes(double value) {
  constexpr double kLargest = 0x1p62;
  return static_cast<int64_t>(std::min(value, kLargest));
}

double d(int64_t value) { return static_cast<double>(value); }

/// Returns the experts per token; 0 for a dense model.
double chosen(const ModelSpec& spec, const PassShape& pass) { return spec.num_experts > 0 ? d(pass.top_k) : 0; }

const MemoryPart& largest(const MemoryPlan& plan) {
  return *std::max_element(plan.parts.begin(), plan.parts.end(),
                           [](const MemoryPart& x, const MemoryPart& y) { return x.bytes < y.bytes; });
}

/// Returns the largest part that a key can reduce, or the largest part if there is none.
const MemoryPart& to_lower(const MemoryPlan& plan) {
  const MemoryPart* best = nullptr;
  for (const auto& part : plan.parts)
    if (!part.lower.empty() && (!best || part.bytes > best->bytes)) best = &part;
  return best ? *best : largest(plan);
}

}  // namespace

int64_t MemoryPlan::needed() const {
  double sum = 0;
  for (const auto& part : parts) sum += d(part.bytes);
  return bytes(sum);
}

MemoryVerdict verdict(const MemoryPlan& plan, const machine::Memory& memory) {
  const double needed = d(plan.needed()), with_files = needed + d(plan.mapped);
  if (needed > d(memory.available) || with_files > d(memory.address_space)) return MemoryVerdict::kTooLarge;
  return needed > 0.9 * d(memory.available) || with_files > d(memory.available) ? MemoryVerdict::kTight
                                                                                : MemoryVerdict::kFits;
}

std::string memory_report(const MemoryPlan& plan, const machine::Memory& memory) {
  const auto text = machine::bytes_text;
  const auto& part = to_lower(plan);
  std::string line = concat("needs about ", text(plan.needed()), " of memory");
  if (plan.mapped > 0) line += concat(" and maps ", text(plan.mapped), " of files");
  line += concat(", ", text(memory.available), " are available (", memory.limited_by, ")");
  if (memory.address_space < std::numeric_limits<int64_t>::max())
    line += concat(" and ", text(memory.address_space), " of address space (ulimit -v)");
  line += concat("; ", text(part.bytes), " are ", part.what);
  return part.lower.empty() ? line : concat(line, ": lower ", part.lower);
}

void require_memory(const MemoryPlan& plan, const machine::Memory& memory, std::string_view who) {
  const auto result = verdict(plan, memory);
  EK_CHECK(result != MemoryVerdict::kTooLarge, kConfig, who, " ", memory_report(plan, memory));
  if (result == MemoryVerdict::kTight) log::warning("[memory] ", who, " ", memory_report(plan, memory));
}

MemoryPlan of_ranks(MemoryPlan plan, int64_t ranks) {
  if (ranks <= 1) return plan;
  for (auto& part : plan.parts) {
    part.bytes = bytes(d(part.bytes) * d(ranks));
    part.what += concat(" of each of ", ranks, " ranks");
    part.lower += part.lower.empty() ? "the number of ranks" : " or the number of ranks";
  }
  plan.mapped = bytes(d(plan.mapped) * d(ranks));
  return plan;
}

void require_device_memory(const MemoryPlan& plan, c10::Device device, std::string_view who, int64_t ranks) {
  if (device.is_cpu()) return;
  const auto memory = device_memory(device);
  const auto name = concat(device_text(device), ", ", device_identity(device).name);
  const auto require = [&](const MemoryPlan& of, int64_t available, std::string_view which, std::string_view whose) {
    require_memory(of,
                   {.physical = memory.total,
                    .available = available,
                    .address_space = std::numeric_limits<int64_t>::max(),
                    .limited_by = concat(which, name)},
                   concat("on ", device_text(device), " ", who, whose));
  };
  if (ranks > 1) require(of_ranks(plan, ranks), memory.total, "all of ", concat(" of ", ranks, " ranks"));
  require(plan, memory.free, "free on ", "");
}

MemoryPart device_libraries() { return {"CUDA's libraries and their workspaces", int64_t{1} << 30, ""}; }

int64_t kept_bytes(const ModelSpec& spec, const PassShape& pass) {
  return bytes(kFloat * d(pass.tokens) * (spec.work.kept + chosen(spec, pass) * spec.work.kept_by_expert));
}

int64_t kept_bytes_of_operators(const ModelSpec& spec, const PassShape& pass) {
  const double slots = chosen(spec, pass) * d(pass.tokens);
  return kept_bytes(spec, pass) + bytes(kFloat * slots * d(spec.hidden_size) * d(spec.num_layers));
}

int64_t passing_bytes(const ModelSpec& spec, const PassShape& pass) {
  const double hidden = d(spec.hidden_size), tokens = d(pass.tokens);
  const double residual = 8 * tokens * hidden;
  const double slots = chosen(spec, pass) * tokens * hidden;
  const double workspaces = d(pass.threads) * tokens * (2 * hidden + 4 * spec.work.widest);
  const double head = 3 * d(pass.targets) * hidden;
  return bytes(kFloat * (residual + slots + workspaces + head) +
               std::min(1.25 * d(nn::kLogitsBytes), 2 * kFloat * d(pass.targets) * d(spec.vocab_size)));
}

int64_t padded_attention_bytes(const ModelSpec& spec, const PassShape& pass) {
  const double padded = d(pass.sequences) * d(pass.longest), layers = std::max(1.0, d(spec.num_layers));
  // A layer saves two matrices of scores per head, and three more exist while it is computed.
  const double capped = spec.work.capped_heads * d(pass.longest) * (2 + 3 / layers);
  return bytes(kFloat * padded * (2 * spec.work.scores + capped));
}

int64_t passing_bytes_of_operators(const ModelSpec& spec, const PassShape& pass) {
  const double layers = std::max(1.0, d(std::ssize(spec.moe_layers)));
  const double row = 4 * d(spec.hidden_size) + 2.5 * spec.work.kept_by_expert / layers;
  return bytes(d(passing_bytes(spec, pass)) + kFloat * chosen(spec, pass) * d(pass.tokens) * row);
}

int64_t cache_bytes(const nn::KvShape& shape, int64_t tokens) { return bytes(d(shape.token_bytes()) * d(tokens)); }

int64_t cache_bytes(const ModelSpec& spec, int64_t sequences, int64_t tokens, nn::KvType type) {
  const double each = type == nn::KvType::kBFloat16 ? kFloat / 2 : kFloat;
  return bytes(each * 2 * d(spec.num_layers) * d(spec.num_kv_heads * spec.head_width) * d(sequences) * d(tokens));
}

}  // namespace evenkeel::models
