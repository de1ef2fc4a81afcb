#include "methods/described_method.h"

#include <algorithm>
#include <array>

#include "base/plain/files.h"

namespace evenkeel::methods {
namespace {

constexpr std::array<std::string_view, 12> kHooks{"prepare",         "extra_loss", "penalty",      "edit_gradients",
                                                  "edit_parameters", "upload",     "check_upload", "initialize",
                                                  "broadcast",       "aggregate",  "diagnostics",  "pseudo_gradients"};

constexpr std::array kFamilies{config::EnumName{"sparsity", MethodFamily::kSparsity},
                               config::EnumName{"rank", MethodFamily::kRank},
                               config::EnumName{"homogeneous", MethodFamily::kHomogeneous}};

bool is_name(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed);
}

OptionValue value_of(const std::string& type, const JsonView& view) {
  if (type == "bool") return view.flag();
  if (type == "int") return view.integer();
  if (type == "float") return view.number();
  if (type == "str") return view.string();
  if (type == "list[int]") return view.integers();
  if (type == "list[str]") return view.strings();
  if (type != "list[float]") view.refuse(" is of type \"", type, "\", which no key has");
  std::vector<double> numbers;
  for (const auto& item : view.items()) numbers.push_back(item.number());
  return numbers;
}

std::vector<DescribedOption> options_in(const JsonView& view) {
  std::vector<DescribedOption> options;
  for (const auto& item : view.items()) {
    item.at("name").require(is_name(item.at("name").string()), " is no name of a key");
    options.push_back(
        {item.at("name").string(), item.at("help").string(), value_of(item.at("type").string(), item.at("default"))});
  }
  return options;
}

template <typename Names>
auto value_in(const Names& names, const JsonView& view) {
  std::vector<std::string_view> allowed;
  for (const auto& entry : names) {
    if (entry.name == view.string()) return entry.value;
    allowed.push_back(entry.name);
  }
  view.refuse(" is \"", view.string(), "\", allowed: ", join(allowed));
}

std::set<std::string> hooks_in(const JsonView& view) {
  std::set<std::string> hooks;
  for (const auto& item : view.items()) {
    const bool known = std::find(kHooks.begin(), kHooks.end(), item.string()) != kHooks.end();
    item.require(known, " is \"", item.string(), "\", which is no hook of a method");
    hooks.insert(item.string());
  }
  return hooks;
}

/// Reads the ranges of metrics, and adds those of the base method that have other names. Names of the former are views
/// of `metric_names`.
void read_metrics(const JsonView& view, std::span<const MetricRange> of_base, MethodDescription& made) {
  const auto members = view.members();
  made.metric_names.reserve(members.size());
  for (const auto& member : members) {
    made.metric_names.push_back(member.key());
    made.metrics.push_back({made.metric_names.back(), member.at(size_t{0}).number(), member.at(size_t{1}).number()});
  }
  for (const auto& metric : of_base)
    if (std::ranges::find(made.metric_names, metric.name) == made.metric_names.end()) made.metrics.push_back(metric);
}

const MethodEntry& base_entry(const MethodDescription& description) { return find_method(description.base); }

std::unique_ptr<FederatedMethod> make_base(const MethodDescription& description) {
  const auto place = concat("base_options of method ", description.name);
  return base_entry(description).make(config::Table::parse(description.base_options, place));
}

DescribedOptions read_options(const MethodDescription& description, const config::Table& table) {
  DescribedOptions options{description.options};
  config::read(table, options);
  return options;
}

}  // namespace

OrderedJson DescribedOptions::json() const {
  OrderedJson all = OrderedJson::object();
  for (const auto& option : options) std::visit([&](const auto& value) { all[option.name] = value; }, option.value);
  return all;
}

std::shared_ptr<const MethodDescription> read_description(const JsonView& view) {
  auto made = std::make_shared<MethodDescription>();
  for (const auto& [key, text] : {std::pair{"name", &made->name},
                                  {"title", &made->title},
                                  {"paper", &made->paper},
                                  {"sends", &made->sends},
                                  {"file", &made->file},
                                  {"class", &made->class_name},
                                  {"sha256", &made->sha256},
                                  {"base", &made->base},
                                  {"base_options", &made->base_options}})
    *text = view.at(key).string();
  view.at("name").require(is_name(made->name), " is \"", made->name, "\", allowed: a to z, 0 to 9, - and _");
  made->hooks = hooks_in(view.at("hooks"));
  made->options = options_in(view.at("options"));
  const auto& base = base_entry(*made);
  read_metrics(view.at("metrics"), base.metrics, *made);
  const auto family = view.find("family");
  made->family = family ? value_in(kFamilies, *family) : base.family;
  const auto gate_norm = view.find("gate_norm");
  made->gate_norm = gate_norm ? value_in(names(nn::GateNorm{}), *gate_norm) : base.gate_norm;
  made->exact = view.flag_or("exact", base.exact && made->hooks.empty());
  made->needs_experts = view.flag_or("needs_experts", base.needs_experts);
  made->needs_individuals = view.flag_or("needs_individuals", base.needs_individuals);
  made->changes_base = view.flag_or("changes_base", base.changes_base);
  made->seconds = view.at("seconds").number();
  made->json = view.json();
  make_base(*made);
  return made;
}

MethodDigests digests_of(const MethodEntry& entry) {
  if (!entry.described) return {};
  auto rest = entry.described->json;
  for (const auto* key : {"file", "sha256"}) rest.erase(key);
  return {.name = entry.described->name, .source = entry.described->sha256, .description = sha256(rest.dump())};
}

MethodEntry described_entry(const std::shared_ptr<const MethodDescription>& description, MakeDescribed make) {
  const auto& base = base_entry(*description);
  auto entry = base;
  entry.name = description->name;
  entry.title = description->title;
  entry.paper = description->paper;
  entry.family = description->family;
  entry.gate_norm = description->gate_norm;
  entry.exact = description->exact;
  entry.needs_experts = description->needs_experts;
  entry.needs_individuals = description->needs_individuals;
  entry.changes_base = description->changes_base;
  entry.rows_by_gradients = false;  // what its hooks do with rows is not known
  entry.by_site = false;
  entry.from_sums = FromSums::kNo;
  entry.why_single = "is a method in Python, which may read single uploads";
  if (!description->sends.empty()) entry.sends = description->sends;
  entry.metrics = description->metrics;
  entry.described = description;
  entry.has_hooks = static_cast<bool>(make);
  entry.make = [description, make = std::move(make)](const config::Table& table) -> std::unique_ptr<FederatedMethod> {
    const auto options = read_options(*description, table);
    if (make) return make(description, options);
    return std::make_unique<DescribedMethod>(description);
  };
  entry.write = [description](const config::Table& table, config::Writer& writer) {
    read_options(*description, table).visit(writer);
  };
  entry.list = [description](const config::Table& table, config::ValueLister& lister) {
    read_options(*description, table).visit(lister);
  };
  return entry;
}

std::vector<std::string> method_flag(const std::string& file, const std::string& class_name) {
  if (!is_file(file)) return {};
  return {"--method", concat(file, ":", class_name)};
}

void know_described(const JsonView& view) {
  const auto description = read_description(view);
  for (const auto& known : methods()) {
    if (known.name != description->name) continue;
    if (!known.described || known.has_hooks || known.described->json == description->json) return;
  }
  add_method(described_entry(description));
}

OrderedJson to_json(const MethodDescriptions& descriptions) {
  OrderedJson list = OrderedJson::array();
  for (const auto& one : descriptions.list) list.push_back(OrderedJson(one));
  return list;
}

void from_json(const JsonView& view, MethodDescriptions& descriptions) {
  for (const auto& one : view.items()) {
    know_described(one);
    descriptions.list.push_back(one.json());
  }
}

DescribedMethod::DescribedMethod(std::shared_ptr<const MethodDescription> description)
    : description_(std::move(description)), base_(make_base(*description_)) {}

const FederatedMethod& DescribedMethod::base_for(const char* hook) const {
  EK_CHECK(!overrides(hook), kConfig, "method ", description_->name, " overrides ", hook,
           " in Python, and a run folder starts no code: name its file by --method ", description_->file, ":",
           description_->class_name);
  return *base_;
}

LocalSetup DescribedMethod::prepare(const lora::Payload& download, const ClientView& view) const {
  return base_for("prepare").prepare(download, view);
}

at::Tensor DescribedMethod::extra_loss(const StepView& step) const { return base_for("extra_loss").extra_loss(step); }

at::Tensor DescribedMethod::penalty(const StepView& step) const { return base_for("penalty").penalty(step); }

void DescribedMethod::edit_gradients(const StepView& step) const { base_for("edit_gradients").edit_gradients(step); }

void DescribedMethod::edit_parameters(const StepView& step) const { base_for("edit_parameters").edit_parameters(step); }

lora::Payload DescribedMethod::upload(const lora::Payload& download, const LocalSetup& setup,
                                      const nn::RoutingByLayer& counts, const ClientView& view) const {
  return base_for("upload").upload(download, setup, counts, view);
}

void DescribedMethod::check_upload(const lora::Payload& upload, const ClientProfile& client) const {
  base_for("check_upload").check_upload(upload, client);
}

ServerState DescribedMethod::initialize(const ServerView& server) const {
  return base_for("initialize").initialize(server);
}

int64_t DescribedMethod::rank_of(const ServerState& state, const ClientProfile& client) const {
  return base_->rank_of(state, client);
}

lora::Payload DescribedMethod::broadcast(const ServerState& state, const ClientProfile& client,
                                         const RoundView& round) const {
  return base_for("broadcast").broadcast(state, client, round);
}

ServerState DescribedMethod::aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                                       const Uploads& uploads) const {
  return base_for("aggregate").aggregate(server, state, round, uploads);
}

TensorMap DescribedMethod::diagnostics(const ServerState& state) const {
  return base_for("diagnostics").diagnostics(state);
}

lora::AdapterState DescribedMethod::pseudo_gradients(const ServerState& state) const {
  return base_for("pseudo_gradients").pseudo_gradients(state);
}

}  // namespace evenkeel::methods
