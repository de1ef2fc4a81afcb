#include "lora/payload.h"

#include <ATen/ATen.h>

#include "base/json.h"

namespace evenkeel {
namespace {

constexpr std::string_view kAdapter = "adapter/";
constexpr std::string_view kExtra = "extra/";
constexpr std::string_view kScaling = "scaling";

at::ScalarType wire_type(const at::Tensor& tensor, TransportDtype dtype) {
  const bool scalar = tensor.scalar_type() == at::kDouble && tensor.dim() == 0;
  if (!tensor.is_floating_point() || scalar) return tensor.scalar_type();
  return dtype == TransportDtype::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

/// What a receiver makes of a tensor: floating-point ones are widened to float32, the rest stay.
at::Tensor received(const at::Tensor& sent) {
  const auto type = sent.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? sent.to(at::kFloat) : sent;
}

/// The file's tensors, each made by `convert(tensor, type on the wire)`.
template <typename Convert>
TensorMap file_tensors(const Payload& payload, TransportDtype dtype, Convert convert) {
  TensorMap tensors;
  const auto add = [&](std::string name, const at::Tensor& tensor) {
    if (tensor.defined()) tensors.emplace(std::move(name), convert(tensor, wire_type(tensor, dtype)));
  };
  for (const auto& [site, factors] : payload.adapters) {
    add(concat(kAdapter, site, "/a"), factors.a);
    add(concat(kAdapter, site, "/b"), factors.b);
    add(concat(kAdapter, site, "/core"), factors.core);
  }
  for (const auto& [name, tensor] : payload.extras) add(concat(kExtra, name), tensor);
  return tensors;
}

Metadata file_metadata(const Payload& payload) {
  OrderedJson scaling = OrderedJson::object();
  for (const auto& [site, factors] : payload.adapters) scaling[site] = factors.scaling;
  return {{std::string(kScaling), scaling.dump()}};
}

/// Puts "adapter/<site>/a" in its place.
void place_factor(AdapterState& adapters, std::string_view name, const at::Tensor& tensor, const std::string& file) {
  const auto slash = name.rfind('/');
  EK_CHECK(slash != std::string_view::npos, kCheckpoint, file, ": unexpected tensor ", name);
  auto& factors = adapters[std::string(name.substr(0, slash))];
  const auto which = name.substr(slash + 1);
  EK_CHECK(which == "a" || which == "b" || which == "core", kCheckpoint, file, ": unexpected tensor ", name);
  (which == "a" ? factors.a : which == "b" ? factors.b : factors.core) = tensor;
}

void read_scaling(AdapterState& adapters, const Metadata& metadata, const std::string& file) {
  const auto text = metadata.find(std::string(kScaling));
  EK_CHECK(text != metadata.end(), kCheckpoint, file, ": not a payload: its metadata has no scaling");
  const Json scaling = parse_json(text->second, concat(file, " (scaling)"), kCheckpoint);
  for (auto& [site, factors] : adapters) {
    EK_CHECK(factors.a.defined() && factors.b.defined(), kCheckpoint, file, ": site ", site, " lacks a factor");
    EK_CHECK(scaling.is_object() && scaling.contains(site) && scaling[site].is_number(), kCheckpoint, file, ": site ",
             site, " has no scaling");
    factors.scaling = scaling[site].get<double>();
  }
}

}  // namespace

Payload through_wire(const Payload& payload, TransportDtype dtype) {
  const auto pass = [&](const at::Tensor& t) { return t.defined() ? received(t.to(wire_type(t, dtype))) : t; };
  Payload result;
  for (const auto& [site, f] : payload.adapters)
    result.adapters.emplace(site, LoraFactors{pass(f.a), pass(f.b), pass(f.core), f.scaling});
  for (const auto& [name, tensor] : payload.extras) result.extras.emplace(name, pass(tensor));
  return result;
}

int64_t save_payload(const std::filesystem::path& file, const Payload& payload, TransportDtype dtype) {
  const auto tensors =
      file_tensors(payload, dtype, [](const at::Tensor& t, at::ScalarType type) { return t.to(type); });
  return save_safetensors(file, tensors, file_metadata(payload));
}

Payload load_payload(const std::filesystem::path& file) {
  const auto content = load_safetensors(file);
  Payload payload;
  for (const auto& [name, tensor] : content.tensors) {
    const std::string_view view = name;
    if (view.starts_with(kAdapter))
      place_factor(payload.adapters, view.substr(kAdapter.size()), received(tensor), file.string());
    else if (view.starts_with(kExtra))
      payload.extras.emplace(view.substr(kExtra.size()), received(tensor));
    else
      fail(kCheckpoint, file.string(), ": unexpected tensor ", name);
  }
  read_scaling(payload.adapters, content.metadata, file.string());
  return payload;
}

int64_t payload_size(const Payload& payload, TransportDtype dtype) {
  const auto shape_only = [](const at::Tensor& t, at::ScalarType type) {
    return at::empty(t.sizes(), at::TensorOptions().dtype(type).device(at::kMeta));
  };
  return safetensors_size(file_tensors(payload, dtype, shape_only), file_metadata(payload));
}

}  // namespace evenkeel
