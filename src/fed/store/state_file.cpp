#include "fed/store/state_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/plain/files.h"
#include "lora/adapter_tensors.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kExtraPrefix = "extra/", kMemoryPrefix = "memory/", kUnadaptedPrefix = "unadapted/",
                           kScaling = "/scaling";

/// An adapter state of a server and the prefix of its tensors' names.
struct Part {
  std::string_view prefix;
  lora::AdapterState& (*of)(methods::ServerState& state);
};
constexpr std::array kParts = {
    Part{"adapter/", [](methods::ServerState& state) -> lora::AdapterState& { return state.global.adapters; }},
    Part{"base_delta/", [](methods::ServerState& state) -> lora::AdapterState& { return state.global.base_delta; }},
    Part{"fixed/", [](methods::ServerState& state) -> lora::AdapterState& { return state.common.fixed; }},
    Part{"base_change/", [](methods::ServerState& state) -> lora::AdapterState& { return state.common.base_change; }},
};

void add(TensorMap& out, std::string_view prefix, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) out.emplace(concat(prefix, name), tensor);
}

void add(TensorMap& out, std::string_view prefix, const lora::AdapterState& adapters) {
  for (const auto& [site, factors] : adapters) {
    const auto name = concat(prefix, site);
    lora::add_factors(name, factors,
                      [&](std::string own, const at::Tensor& tensor) { out.emplace(std::move(own), tensor); });
    out.emplace(concat(name, kScaling), at::full({}, factors.scaling, at::kDouble));
  }
}

/// Returns `tensors`. \throws kNumeric naming a tensor that is not finite
TensorMap finite(TensorMap tensors, const std::string& source) {
  for (const auto& [name, tensor] : tensors)
    EK_CHECK(!tensor.is_floating_point() || tensor.isfinite().all().item<bool>(), kNumeric, source, ": tensor ", name,
             " holds a value that is not finite");
  return tensors;
}

/// Stores the tensor "<site>/a" as a factor. \return false if the name is not that of a factor
bool insert_tensor(lora::AdapterState& adapters, std::string_view name, const at::Tensor& tensor) {
  if (!name.ends_with(kScaling)) return lora::insert_factor(adapters, name, tensor);
  if (tensor.dim() != 0 || tensor.scalar_type() != at::kDouble) return false;
  adapters[std::string(name.substr(0, name.size() - kScaling.size()))].scaling = tensor.item<double>();
  return true;
}

/// Stores the tensor of a name such as "fixed/<site>/a". \return false if the name is unknown
bool insert_tensor(methods::ServerState& state, std::string_view name, const at::Tensor& tensor) {
  for (const auto& part : kParts)
    if (name.starts_with(part.prefix)) return insert_tensor(part.of(state), name.substr(part.prefix.size()), tensor);
  return false;
}

/// Returns the client's id in "<id>/<name>"; -1 if there is none.
int64_t id_of(std::string_view name) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  return error == std::errc() && end != name.data() + name.size() && *end == '/' ? id : -1;
}

/// Checks a factor's shape: the site's experts, if any, then `rows` and `columns` (-1: any size). An undefined tensor
/// passes. \throws kCheckpoint
struct Fit {
  const std::string& source;
  const std::string& name;
  const lora::Site& site;

  void operator()(std::string_view factor, const at::Tensor& tensor, int64_t rows, int64_t columns) const {
    if (!tensor.defined()) return;
    const auto sizes = tensor.sizes();
    const auto shape = lora::stacked_shape(site, rows, columns);
    const bool fits = std::equal(sizes.begin(), sizes.end(), shape.begin(), shape.end(),
                                 [](int64_t size, int64_t expected) { return expected < 0 || size == expected; });
    EK_CHECK(fits, kCheckpoint, source, ": ", factor, " of site ", name, " has shape ", tensor.sizes(),
             ", which does not fit the model");
  }
};

void check_factors(const lora::LoraFactors& f, const Fit& fit) {
  fit("a", f.a, -1, fit.site.in);
  fit("b", f.b, fit.site.out, -1);
  const int64_t rank = f.a.defined() ? f.a.size(-2) : f.b.defined() ? f.b.size(-1) : -1;
  fit("b", f.b, fit.site.out, rank);
  fit("core", f.core, rank, rank);
  const bool ranks_fit = !f.ranks.defined() || (f.ranks.dim() == 1 && f.ranks.size(0) == fit.site.experts);
  EK_CHECK(ranks_fit, kCheckpoint, fit.source, ": ranks of site ", fit.name, " are not one per expert");
}

void check_sites(const lora::AdapterState& adapters, const lora::Sites& sites, const std::string& source) {
  for (const auto& [name, factors] : adapters) {
    const auto site = sites.find(name);
    EK_CHECK(site != sites.end(), kCheckpoint, source, ": the model has no site ", name);
    check_factors(factors, {source, name, site->second});
  }
}

}  // namespace

namespace {

TensorMap tensors_of(const methods::ServerState& state) {
  TensorMap out;
  methods::ServerState shallow = state;
  for (const auto& part : kParts) add(out, part.prefix, part.of(shallow));
  add(out, kExtraPrefix, state.global.extras);
  add(out, kMemoryPrefix, state.memory);
  for (const auto& site : state.unadapted) out.emplace(concat(kUnadaptedPrefix, site), at::empty({0}, at::kByte));
  return out;
}

TensorMap tensors_of(const ClientMemories& memories) {
  TensorMap out;
  for (const auto& [id, tensors] : memories) add(out, concat(id, "/"), tensors);
  return out;
}

methods::ServerState state_of(const TensorMap& tensors, int64_t round, const std::string& origin) {
  methods::ServerState state{.round = round};
  for (const auto& [name, tensor] : finite(tensors, origin)) {
    const std::string_view view = name;
    if (view.starts_with(kExtraPrefix))
      state.global.extras.emplace(view.substr(kExtraPrefix.size()), tensor);
    else if (view.starts_with(kMemoryPrefix))
      state.memory.emplace(view.substr(kMemoryPrefix.size()), tensor);
    else if (view.starts_with(kUnadaptedPrefix))
      state.unadapted.emplace(view.substr(kUnadaptedPrefix.size()));
    else
      EK_CHECK(insert_tensor(state, view, tensor), kCheckpoint, origin, ": unexpected tensor ", name, " of shape ",
               tensor.sizes());
  }
  return state;
}

ClientMemories memories_of(const TensorMap& tensors, const std::string& origin) {
  ClientMemories memories;
  for (const auto& [name, tensor] : finite(tensors, origin)) {
    const int64_t id = id_of(name);
    EK_CHECK(id >= 0, kCheckpoint, origin, ": unexpected tensor ", name);
    memories[id].emplace(name.substr(name.find('/') + 1), tensor.clone());
  }
  return memories;
}

}  // namespace

void save_state(const fs::path& file, const methods::ServerState& state) { save_safetensors(file, tensors_of(state)); }

methods::ServerState load_state(const fs::path& file, int64_t round) {
  return state_of(load_safetensors(file).tensors, round, file.string());
}

at::Tensor encode_state(const methods::ServerState& state) { return encode_safetensors(tensors_of(state)); }

methods::ServerState decode_state(const at::Tensor& bytes_N, int64_t round, const std::string& source) {
  return state_of(decode_safetensors(bytes_N, source).tensors, round, source);
}

void save_memories(const fs::path& file, const ClientMemories& memories) {
  save_safetensors(file, tensors_of(memories));
}

ClientMemories load_memories(const fs::path& file) {
  return memories_of(load_safetensors(file).tensors, file.string());
}

at::Tensor encode_memories(const ClientMemories& memories) { return encode_safetensors(tensors_of(memories)); }

ClientMemories decode_memories(const at::Tensor& bytes_N, const std::string& source) {
  return memories_of(decode_safetensors(bytes_N, source).tensors, source);
}

std::set<std::string> unadapted_sites(const methods::ServerState& state, const lora::Sites& sites) {
  std::set<std::string> names;
  for (const auto& [name, site] : sites)
    if (!state.global.adapters.contains(name) && !state.common.base_change.contains(name)) names.insert(name);
  return names;
}

void check_state(const methods::ServerState& state, const lora::Sites& sites, const std::string& source) {
  const auto adapters = lora::completed(state.global.adapters, state.common.fixed);
  for (const auto* part : {&adapters, &state.global.base_delta, &state.common.fixed, &state.common.base_change})
    check_sites(*part, sites, source);
  for (const auto& name : state.unadapted)
    EK_CHECK(sites.contains(name), kCheckpoint, source, ": the model has no site ", name);
  for (const auto& [name, site] : sites) {
    const auto own = adapters.find(name);
    const bool whole =
        own != adapters.end() ? own->second.a.defined() && own->second.b.defined() : state.unadapted.contains(name);
    EK_CHECK(whole || state.common.base_change.contains(name), kCheckpoint, source, ": the factors of site ", name,
             " are missing");
  }
}

}  // namespace evenkeel::fed
