#include "lora/payload.h"

#include <ATen/ATen.h>

#include <memory>
#include <span>
#include <utility>

#include "base/plain/json.h"
#include "lora/adapter_tensors.h"
#include "lora/packing.h"

namespace evenkeel::lora {
namespace {

constexpr std::string_view kAdapter = "adapter/";
constexpr std::string_view kBaseDelta = "base_delta/";
constexpr std::string_view kExtra = "extra/";
constexpr std::string_view kScaling = "scaling", kBaseScaling = "base_scaling";

at::ScalarType wire_type(const at::Tensor& tensor, TransportDtype dtype) {
  if (!tensor.is_floating_point() || tensor.dim() < 2 || dtype == TransportDtype::kAsTheyAre)
    return tensor.scalar_type();
  return dtype == TransportDtype::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

/// Returns a tensor as a receiver decodes it: floating-point tensors become float32, others do not change.
at::Tensor received(const at::Tensor& sent) {
  const auto type = sent.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? sent.to(at::kFloat) : sent;
}

/// Concatenates the used rows of all experts: [E, r, n] with ranks [E] becomes [sum of ranks, n].
at::Tensor used_rows(const at::Tensor& stack_ERN, const at::Tensor& ranks_E) {
  std::vector<at::Tensor> rows;
  for (int64_t e = 0; e < ranks_E.size(0); ++e) rows.push_back(stack_ERN[e].narrow(0, 0, ranks_E[e].item<int64_t>()));
  return at::cat(rows);
}

at::Tensor unpacked(const at::Tensor& rows_SN, const at::Tensor& ranks_E) {
  const int64_t rank = ranks_E.max().item<int64_t>();
  auto stack_ERN = at::zeros({ranks_E.size(0), rank, rows_SN.size(1)}, rows_SN.options());
  int64_t first = 0;
  for (int64_t e = 0; e < ranks_E.size(0); ++e) {
    const int64_t count = ranks_E[e].item<int64_t>();
    stack_ERN[e].narrow(0, 0, count).copy_(rows_SN.narrow(0, first, count));
    first += count;
  }
  return stack_ERN;
}

/// Returns the factors of a site as they are sent. If experts of a stack differ in rank, only the used rows are sent.
LoraFactors used_rows(const LoraFactors& f) {
  if (!f.ranks.defined()) return f;
  return {
      .a = used_rows(f.a, f.ranks), .b = used_rows(f.b.transpose(-1, -2), f.ranks), .core = f.core, .ranks = f.ranks};
}

/// Builds the tensors of the file. `convert(tensor, type on the wire)` creates each.
template <typename Convert>
TensorMap file_tensors(const Payload& payload, TransportDtype dtype, Convert convert) {
  TensorMap tensors;
  const auto add = [&](std::string name, const at::Tensor& tensor) {
    if (tensor.defined()) tensors.emplace(std::move(name), convert(tensor, wire_type(tensor, dtype)));
  };
  for (const auto& [site, f] : payload.adapters) add_factors(concat(kAdapter, site), used_rows(f), add);
  for (const auto& [site, f] : payload.base_delta) add_factors(concat(kBaseDelta, site), used_rows(f), add);
  for (const auto& [name, tensor] : payload.extras) add(concat(kExtra, name), tensor);
  return tensors;
}

std::string scalings_of(const AdapterState& adapters) {
  OrderedJson scaling = OrderedJson::object();
  for (const auto& [site, factors] : adapters) scaling[site] = factors.scaling;
  return scaling.dump();
}

Metadata file_metadata(const Payload& payload) {
  Metadata metadata{{std::string(kScaling), scalings_of(payload.adapters)}};
  if (!payload.base_delta.empty()) metadata[std::string(kBaseScaling)] = scalings_of(payload.base_delta);
  return metadata;
}

TensorMap shapes_on_the_wire(const Payload& payload, TransportDtype dtype) {
  return file_tensors(payload, dtype, [](const at::Tensor& t, at::ScalarType type) {
    return at::empty(t.sizes(), at::TensorOptions().dtype(type).device(at::kMeta));
  });
}

TensorMap tensors_to_send(const Payload& payload, TransportDtype dtype) {
  return file_tensors(payload, dtype, [](const at::Tensor& t, at::ScalarType) { return t; });
}

/// Returns the sort key of a tensor. It keeps the tensors of an array adjacent, so that an array is one range of bytes.
std::string array_key(const std::string& name, const at::Tensor& tensor) {
  return array_of(name, tensor.dim(), tensor.scalar_type());
}

bool is_router(const Sites& sites, std::string_view name) {
  const auto site = sites.find(std::string(name));
  return site != sites.end() && site->second.role == SiteRole::kRouter;
}

/// Returns the category of a tensor for the size statistics.
std::string part_of(std::string_view name, const Sites& sites) {
  const auto path = name.substr(name.find('/') + 1);
  if (name.starts_with(kExtra)) return std::string(path.substr(path.rfind('.') + 1));
  if (path.ends_with("/ranks")) return "ranks";
  const bool router = is_router(sites, path.substr(0, path.rfind('/')));
  return concat(router ? "router_" : "", name.starts_with(kAdapter) ? "adapters" : "base_delta");
}

/// Returns the bytes per category. \param size  of the whole file; bytes that belong to no tensor are the header
std::map<std::string, int64_t> parts_of(const TensorMap& shapes, int64_t size, const Sites& sites) {
  std::map<std::string, int64_t> parts{{"header", size}};
  for (const auto& [name, tensor] : shapes) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    parts[part_of(name, sites)] += bytes;
    parts["header"] -= bytes;
  }
  return parts;
}

/// Returns whether `ranks` [E] are valid and add up to `rows`. The sum is not computed first, because it could
/// overflow.
bool are_ranks(const at::Tensor& ranks, int64_t rows) {
  if (ranks.dim() != 1 || ranks.numel() == 0 || ranks.scalar_type() != at::kLong) return false;
  const auto plain_E = ranks.contiguous();
  for (const int64_t rank : std::span(plain_E.const_data_ptr<int64_t>(), static_cast<size_t>(plain_E.numel()))) {
    if (rank < 0 || rank > rows) return false;
    rows -= rank;
  }
  return rows == 0;
}

void unpack(LoraFactors& factors, const std::string& site, const std::string& file) {
  const auto& [a, b, core, scaling, ranks] = factors;
  const bool fit = a.defined() && b.defined() && a.dim() == 2 && b.dim() == 2 && b.size(0) == a.size(0) &&
                   are_ranks(ranks, a.size(0));
  EK_CHECK(fit, kCheckpoint, file, ": the factors of site ", site, " do not fit their ranks");
  factors.a = unpacked(factors.a, factors.ranks);
  factors.b = unpacked(factors.b, factors.ranks).transpose(-1, -2).contiguous();
}

/// Sets the scalings, and expands stacks whose experts differ in rank to their full shape.
void complete(AdapterState& adapters, const Metadata& metadata, std::string_view key, const std::string& file) {
  const auto text = metadata.find(std::string(key));
  EK_CHECK(text != metadata.end(), kCheckpoint, file, ": not a payload: its metadata has no ", key);
  const Json scaling = parse_json(text->second, concat(file, " (", key, ")"), kCheckpoint);
  for (auto& [site, factors] : adapters) {
    if (factors.ranks.defined()) unpack(factors, site, file);
    EK_CHECK(scaling.is_object() && scaling.contains(site) && scaling[site].is_number(), kCheckpoint, file, ": site ",
             site, " has no scaling");
    factors.scaling = scaling[site].get<double>();
  }
}

}  // namespace

LoraFactors rounded_for_transport(const LoraFactors& f, TransportDtype dtype) {
  const auto sent = [dtype](const at::Tensor& t) { return t.defined() ? t.to(wire_type(t, dtype)) : t; };
  return {sent(f.a), sent(f.b), sent(f.core), f.scaling, f.ranks};
}

LoraFactors received(const LoraFactors& sent) {
  const auto widen = [](const at::Tensor& t) { return t.defined() ? received(t) : t; };
  return {widen(sent.a), widen(sent.b), widen(sent.core), sent.scaling, sent.ranks};
}

AdapterState received(const AdapterState& sent) {
  AdapterState result;
  for (const auto& [site, factors] : sent) result.emplace(site, received(factors));
  return result;
}

Payload received(const Payload& sent) {
  return {.adapters = received(sent.adapters), .extras = sent.extras, .base_delta = sent.base_delta};
}

EncodedPayload encode(const Payload& payload, TransportDtype dtype, const Sites& sites) {
  const auto shapes = shapes_on_the_wire(payload, dtype);
  auto bytes = encode_safetensors_as(shapes, tensors_to_send(payload, dtype), file_metadata(payload), array_key);
  return {bytes, parts_of(shapes, bytes.numel(), sites)};
}

std::map<std::string, int64_t> pass_encoded(const Payload& payload, TransportDtype dtype, const Sites& sites,
                                            const ByteSink& sink) {
  const auto shapes = shapes_on_the_wire(payload, dtype);
  const int64_t bytes =
      pass_safetensors_as(shapes, tensors_to_send(payload, dtype), file_metadata(payload), array_key, sink);
  return parts_of(shapes, bytes, sites);
}

DeferredPayload::DeferredPayload(EncodedPayload payload)
    : encode([payload] { return payload; }),
      pass([payload](const ByteSink& sink) {
        sink({static_cast<const char*>(payload.bytes.const_data_ptr()), payload.bytes.nbytes()});
        return payload.parts;
      }),
      bytes(payload.size()) {}

DeferredPayload::DeferredPayload(Payload payload, TransportDtype dtype, const Sites& sites) {
  const auto count = [&](const at::Tensor& t) { bytes += t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; };
  for (const auto* adapters : {&payload.adapters, &payload.base_delta})
    for (const auto& [site, f] : *adapters)
      for (const auto& factor : kFactors) count(f.*factor.tensor);
  for (const auto& [name, tensor] : payload.extras) count(tensor);
  const auto owned = std::make_shared<const std::pair<Payload, Sites>>(std::move(payload), sites);
  encode = [owned, dtype] { return lora::encode(owned->first, dtype, owned->second); };
  pass = [owned, dtype](const ByteSink& sink) { return pass_encoded(owned->first, dtype, owned->second, sink); };
}

namespace {

/// Puts a tensor of the file in its place. \return whether there is one
bool insert_tensor(Payload& payload, std::string_view name, const at::Tensor& tensor) {
  if (name.starts_with(kAdapter)) return insert_factor(payload.adapters, name.substr(kAdapter.size()), tensor);
  if (name.starts_with(kBaseDelta)) return insert_factor(payload.base_delta, name.substr(kBaseDelta.size()), tensor);
  return name.starts_with(kExtra) && payload.extras.emplace(name.substr(kExtra.size()), received(tensor)).second;
}

Payload payload_of(const Safetensors& content, const std::string& source) {
  Payload payload;
  for (const auto& [name, tensor] : content.tensors)
    EK_CHECK(insert_tensor(payload, name, tensor), kCheckpoint, source, ": unexpected tensor ", name);
  complete(payload.adapters, content.metadata, kScaling, source);
  if (!payload.base_delta.empty()) complete(payload.base_delta, content.metadata, kBaseScaling, source);
  return payload;
}

}  // namespace

Payload decode(const at::Tensor& bytes, const std::string& source) {
  return payload_of(decode_safetensors(bytes, source), source);
}

Payload load_payload(const std::filesystem::path& file) { return payload_of(load_safetensors(file), file.string()); }

int64_t payload_size(const Payload& payload, TransportDtype dtype) {
  return safetensors_size(shapes_on_the_wire(payload, dtype), file_metadata(payload), array_key);
}

std::map<std::string, int64_t> payload_parts(const Payload& payload, TransportDtype dtype, const Sites& sites) {
  return parts_of(shapes_on_the_wire(payload, dtype), payload_size(payload, dtype), sites);
}

}  // namespace evenkeel::lora
