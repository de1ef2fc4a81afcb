#include <algorithm>

#include "base/plain/files.h"
#include "base/system/device.h"
#include "fed/config/experiment_config.h"
#include "fed/config/study_of_run.h"
#include "nn/cuda_kernels/kernel_names.h"

namespace evenkeel::fed {
namespace {

using Kernels = std::vector<std::string>;

/// Calls f(context, direction, list) with each list of kernels of a section, in the order of its fields.
void for_each_list(auto& section, const auto& f) {
  f(nn::GemmContext::kExpert, nn::Direction::kForward, section.expert_forward);
  f(nn::GemmContext::kExpert, nn::Direction::kBackward, section.expert_backward);
  f(nn::GemmContext::kLinear, nn::Direction::kForward, section.linear_forward);
  f(nn::GemmContext::kLinear, nn::Direction::kBackward, section.linear_backward);
}

const config::EnumName<nn::MatmulKernel>* find_kernel(std::string_view name) {
  static constexpr auto kKernels = nn::names(nn::MatmulKernel{});
  for (const auto& entry : kKernels)
    if (entry.name == name) return &entry;
  return nullptr;
}

void check_list(const config::Table& table, std::string_view key, const Kernels& kernels) {
  for (const auto& name : kernels)
    table.check_entry(find_kernel(name) != nullptr, key, concat('"', name, '"'), "own, widen, native, dot, tile");
  const bool whole = kernels.empty() || kernels.size() == nn::MatmulTable::kRows.size();
  table.check(whole, key, concat("a list of ", kernels.size()),
              concat("none, or one kernel for each of ", join(nn::MatmulTable::kRows), " rows"));
}

/// Returns the default cache of a run, which the runs of a study share wherever the study is now.
fs::path default_cache(const fs::path& run_folder) {
  const auto study = study_of_run(run_folder);
  return base_cache_beside(path_exists(study / kStudyState) ? study : run_folder);
}

}  // namespace

void ProductsSection::resolve(const config::Table& table) const {
  check_list(table, "expert_forward", expert_forward);
  check_list(table, "expert_backward", expert_backward);
  check_list(table, "linear_forward", linear_forward);
  check_list(table, "linear_backward", linear_backward);
  size_t lists = 0;
  for_each_list(*this,
                [&](nn::GemmContext, nn::Direction, const Kernels& kernels) { lists += kernels.empty() ? 0 : 1; });
  const auto keys = table.keys();
  EK_CHECK(lists == 0 || lists == 4, kConfig, table.path(), " has ", lists,
           " lists, allowed: none, or all of expert_forward, expert_backward, linear_forward, linear_backward",
           table.place_of(keys.empty() ? "expert_forward" : keys.front()));
}

ProductsSection ProductsSection::of(const nn::MatmulTable& products) {
  ProductsSection section;
  for_each_list(section, [&](nn::GemmContext place, nn::Direction direction, Kernels& kernels) {
    for (const int64_t rows : nn::MatmulTable::kRows)
      kernels.emplace_back(config::name_of(products.at(place, direction, rows)));
  });
  return section;
}

nn::MatmulTable ProductsSection::table() const {
  nn::MatmulTable products;
  for_each_list(*this, [&](nn::GemmContext place, nn::Direction direction, const Kernels& kernels) {
    for (size_t i = 0; i < kernels.size(); ++i)
      products.set(place, direction, nn::MatmulTable::kRows[i], find_kernel(kernels[i])->value);
  });
  return products;
}

void ModelSection::resolve(const config::Table& table) const {
  const auto dtype_name = config::name_of(compute_dtype);
  const bool lists_count = compute_dtype == ComputeDtype::kAuto || compute_dtype == ComputeDtype::kMeasured;
  table.check(!products.given() || lists_count, "compute_dtype", concat('"', dtype_name, '"'),
              "measured or auto, where model.products lists kernels");
  table.check(products.given() || compute_dtype != ComputeDtype::kMeasured, "compute_dtype",
              concat('"', dtype_name, '"'), "auto, bfloat16 or float32, where model.products lists no kernels");
  const bool as_stored = dtype == models::BaseDtype::kCheckpoint;
  table.check(base_format == models::BaseFormat::kStored || as_stored, "dtype",
              concat('"', config::name_of(dtype), '"'), "checkpoint, where model.base_format is int8");
  table.check(names_compute_device(device), "device", concat('"', device, '"'), "cpu, cuda, cuda:0 and so on, auto");
  if (cuda_kernels != "auto")
    nn::cuda::KernelSet::read(cuda_kernels, "model.cuda_kernels", table.place_of("cuda_kernels"));
  check_engine([&](std::string_view key) { return table.place_of(key); });
}

bool ModelSection::uses_operators() const { return nn::engine_on(engine, device) == nn::EngineKind::kAten; }

void ModelSection::check_engine(const std::function<std::string(std::string_view key)>& place_of) const {
  nn::check_engine(engine, device, place_of("engine"));
  EK_CHECK(graphs != GraphsChoice::kOn || names_gpu(device) || device == "auto", kConfig,
           "model.graphs is \"on\", allowed: auto or off, where model.device is ", device, place_of("graphs"));
  EK_CHECK(cuda_kernels == "auto" || cuda_kernels == "none" || names_gpu(device) || device == "auto", kConfig,
           "model.cuda_kernels is \"", cuda_kernels, "\", allowed: auto or none, where model.device is ", device,
           place_of("cuda_kernels"));
  if (!uses_operators()) return;
  const auto where = concat(", where model.engine is aten (model.device ", device, ")");
  EK_CHECK(base_format == models::BaseFormat::kStored, kConfig, "model.base_format is int8, allowed: stored", where,
           place_of("base_format"));
  EK_CHECK(compute_dtype != ComputeDtype::kMeasured, kConfig,
           "model.compute_dtype is \"measured\", allowed: auto, bfloat16 or float32", where, place_of("compute_dtype"));
  EK_CHECK(!products.given(), kConfig, "model.products lists kernels for processors, allowed: none", where,
           place_of("products"));
}

void ModelSection::settle(const MachineChoices& machine) {
  if (device == "auto") device = machine.device;
  check_engine([](std::string_view) { return std::string(); });
  if (engine == EngineChoice::kAuto) engine = names_gpu(device) ? EngineChoice::kAten : EngineChoice::kKernels;
  settle_products(machine.products);
  settle_graphs(machine.no_graphs);
  settle_cuda_kernels(machine.no_cuda_kernels);
}

void ModelSection::settle_graphs(const std::string& why_not) {
  EK_CHECK(graphs != GraphsChoice::kOn || why_not.empty(), kConfig, "model.graphs is \"on\", but ", why_not,
           "; auto or off computes without");
  if (graphs == GraphsChoice::kAuto) graphs = why_not.empty() ? GraphsChoice::kOn : GraphsChoice::kOff;
}

void ModelSection::settle_cuda_kernels(const std::string& why_not) {
  if (cuda_kernels == "auto") cuda_kernels = why_not.empty() ? "all" : "none";
  EK_CHECK(cuda_kernels == "none" || why_not.empty(), kConfig, "model.cuda_kernels is \"", cuda_kernels, "\", but ",
           why_not, "; auto or none computes without");
}

nn::MatmulTable ModelSection::product_table() const {
  if (compute_dtype == ComputeDtype::kMeasured) return products.table();
  return compute_dtype == ComputeDtype::kBFloat16 ? nn::MatmulKernel::kBf16Dot : nn::MatmulKernel::kFp32Exact;
}

nn::Compute ModelSection::compute() const {
  if (!uses_operators()) return {.products = product_table()};
  const bool rounds = compute_dtype == ComputeDtype::kBFloat16;
  return {.engine = nn::EngineKind::kAten, .inner = rounds ? c10::ScalarType::BFloat16 : c10::ScalarType::Float};
}

void ModelSection::settle_products(const nn::MatmulTable& chosen) {
  if (compute_dtype != ComputeDtype::kAuto) return;
  if (uses_operators()) {
    compute_dtype = names_gpu(device) && !stores_wide() ? ComputeDtype::kBFloat16 : ComputeDtype::kFloat32;
  } else if (!products.given() && (stores_wide() || chosen == nn::MatmulTable(nn::MatmulKernel::kFp32Exact))) {
    compute_dtype = ComputeDtype::kFloat32;
  } else if (!products.given() && chosen == nn::MatmulTable(nn::MatmulKernel::kBf16Dot)) {
    compute_dtype = ComputeDtype::kBFloat16;
  } else {
    compute_dtype = ComputeDtype::kMeasured;
    if (!products.given()) products = ProductsSection::of(chosen);
  }
}

models::BaseStorage ModelSection::storage(const std::filesystem::path& run_folder) const {
  models::BaseStorage storage(dtype);
  storage.format = base_format;
  storage.engine = compute().engine;
  if (base_format != models::BaseFormat::kStored)
    storage.cache = base_cache.empty() ? default_cache(run_folder) : fs::path(base_cache);
  return storage;
}

}  // namespace evenkeel::fed
