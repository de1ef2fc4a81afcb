#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::models {
namespace {

constexpr std::string_view kScaling = "rope_scaling", kParameters = "rope_parameters", kTheta = "rope_theta",
                           kPartial = "partial_rotary_factor", kTrained = "original_max_position_embeddings";
constexpr int64_t kMostPositions = int64_t{1} << 28;

/// Returns the object under `key`, or nullopt if it is absent or empty.
std::optional<JsonView> rope_block(const ModelConfig& config, std::string_view key) {
  const auto block = config.view().find(key);
  if (block) block->object();
  return block && block->size() > 0 ? block : std::nullopt;
}

/// Returns the object with the rotary settings. transformers reads only one object, and prefers rope_scaling.
std::optional<JsonView> rope_block(const ModelConfig& config) {
  const auto scaling = rope_block(config, kScaling), parameters = rope_block(config, kParameters);
  if (!scaling) return parameters;
  EK_CHECK(!parameters || parameters->json() == scaling->json(), kCheckpoint, config.origin(), ": ", kScaling, " is ",
           shown(scaling->json()), " and ", kParameters, " ", shown(parameters->json()),
           ", allowed: one of them, or both alike");
  return scaling;
}

/// Rejects partial RoPE, because the whole head is rotated.
void require_whole_heads(const JsonView& settings) {
  const auto part = settings.find(kPartial);
  if (part) part->require(part->number() == 1, " is ", part->number(), ", supported: 1");
}

/// Reads theta and rejects null, with which transformers cannot compute either.
double theta_at(const JsonView& settings, std::string_view key = kTheta) {
  const auto theta = settings.at(key);
  theta.require(theta.number() > 0 && std::isfinite(theta.number()), " is ", shown(theta.json()), ", allowed: above 0");
  return theta.number();
}

double read_theta(const ModelConfig& config, const std::optional<JsonView>& block, double otherwise) {
  if (block && block->json().contains(kTheta)) return theta_at(*block);
  return config.view().json().contains(kTheta) ? theta_at(config.view()) : otherwise;
}

/// The object with the settings of scaled RoPE, and the rest of config.json.
struct Settings {
  const JsonView& block;
  const ModelConfig& config;
  const RopeSizes& sizes;
  bool has_outer_length = true;  // the top level may have the original length

  double number(std::string_view key, double least, std::string_view allowed) const {
    const auto value = block.at(key);
    value.require(value.number() >= least && std::isfinite(value.number()), " is ", shown(value.json()),
                  ", allowed: ", allowed);
    return value.number();
  }
  double factor() const { return number("factor", 1, "1 or more"); }
  double positive(std::string_view key) const { return number(key, std::numeric_limits<double>::min(), "above 0"); }
  /// Returns the value of `key`, or `otherwise` if it is absent, null or 0.
  double if_not_zero(std::string_view key, double otherwise) const {
    const double value = block.has(key) ? number(key, 0, "0 or more") : 0;
    return value == 0 ? otherwise : value;
  }
  int64_t trained_length() const {
    const auto outer = config.view();
    if (has_outer_length && outer.json().contains(kTrained)) return outer.at(kTrained).integer(1, kMostPositions);
    return block.json().contains(kTrained) ? block.at(kTrained).integer(1, kMostPositions) : sizes.max_positions;
  }
};

void read_default(const Settings& /*settings*/, nn::RopeSpec& /*rope*/) {}

void read_linear(const Settings& settings, nn::RopeSpec& rope) { rope.scaling = nn::LinearRope{settings.factor()}; }

/// Type dynamic changes theta by the length of a text, never below max_position_embeddings. At that length the change
/// is a factor of 1, apart from rounding.
void read_dynamic(const Settings& settings, nn::RopeSpec& rope) {
  const double factor = settings.factor();
  const auto width = static_cast<double>(settings.sizes.head_width),
             length = static_cast<double>(settings.sizes.max_positions);
  settings.block.require(width > 2, " is of type dynamic, which needs heads wider than 2");
  rope.theta *= std::pow(factor * length / length - (factor - 1), width / (width - 2));
  settings.block.at("factor").require(rope.theta > 0 && std::isfinite(rope.theta), " is ", factor,
                                      ", which is too large");
}

void read_llama3(const Settings& settings, nn::RopeSpec& rope) {
  const nn::Llama3Rope read{.factor = settings.factor(),
                            .low_freq_factor = settings.positive("low_freq_factor"),
                            .high_freq_factor = settings.positive("high_freq_factor"),
                            .trained_length = settings.trained_length()};
  settings.block.at("high_freq_factor")
      .require(read.high_freq_factor > read.low_freq_factor, " is ", read.high_freq_factor,
               ", allowed: above low_freq_factor, which is ", read.low_freq_factor);
  rope.scaling = read;
}

/// Returns the factor of YaRN. Null means the ratio of the longest text after scaling to the longest text before
/// scaling.
double yarn_factor(const Settings& settings, int64_t trained_length) {
  const auto factor = settings.block.at("factor");
  if (!factor.json().is_null()) return settings.factor();
  const auto ratio = static_cast<double>(settings.sizes.max_positions) / static_cast<double>(trained_length);
  factor.require(ratio >= 1, " is null and max_position_embeddings over ", kTrained, " ", ratio,
                 ", allowed: 1 or more");
  return ratio;
}

/// Returns the factor of cosines and sines: the given one, or that of the paper.
double yarn_attention(const Settings& settings, double factor) {
  if (settings.block.has("attention_factor")) return settings.positive("attention_factor");
  const auto of = [&](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; };
  const double above = settings.if_not_zero("mscale", 0), below = settings.if_not_zero("mscale_all_dim", 0);
  return above != 0 && below != 0 ? of(above) / of(below) : of(1);
}

void read_yarn(const Settings& settings, nn::RopeSpec& rope) {
  const int64_t trained_length = settings.trained_length();
  const nn::YarnRope read{
      .factor = yarn_factor(settings, trained_length),
      .beta_fast = settings.if_not_zero("beta_fast", 32),
      .beta_slow = settings.if_not_zero("beta_slow", 1),
      .trained_length = trained_length,
      .truncate = settings.block.json().contains("truncate") ? settings.block.at("truncate").flag() : true};
  settings.block.require(read.beta_fast >= read.beta_slow, " has beta_fast ", read.beta_fast, " and beta_slow ",
                         read.beta_slow, ", allowed: beta_fast at least beta_slow");
  settings.block.require(rope.theta != 1, " is of type yarn with a ", kTheta, " of 1, allowed: another one");
  rope.attention_factor = yarn_attention(settings, read.factor);
  rope.scaling = read;
}

/// A value of `rope_type`: its keys in addition to the common ones, and its reader.
struct RopeType {
  std::string_view name;
  std::vector<std::string_view> keys;
  void (*read)(const Settings& settings, nn::RopeSpec& rope);
};

const std::vector<RopeType>& rope_types() {
  static const std::vector<RopeType> types{
      {"default", {}, read_default},
      {"linear", {"factor"}, read_linear},
      {"dynamic", {"factor"}, read_dynamic},
      {"llama3", {"factor", kTrained, "low_freq_factor", "high_freq_factor"}, read_llama3},
      {"yarn",
       {"factor", kTrained, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
       read_yarn}};
  return types;
}

const RopeType& type_of(const JsonView& block) {
  const std::string_view key = block.json().contains("rope_type") ? "rope_type" : "type";
  if (!block.json().contains(key)) return rope_types().front();
  const auto type = block.at(key);
  std::vector<std::string_view> names;
  for (const auto& known : rope_types()) {
    if (type.string() == known.name) return known;
    names.push_back(known.name);
  }
  type.refuse(" is ", shown(type.json()), ", supported: ", join(names));
}

void require_known_keys(const JsonView& block, const RopeType& type) {
  std::vector<std::string_view> known{"rope_type", "type", kTheta, kPartial};
  known.insert(known.end(), type.keys.begin(), type.keys.end());
  for (const auto& member : block.members())
    member.require(std::find(known.begin(), known.end(), member.key()) != known.end(), " is no key of RoPE of type ",
                   type.name, ", known: ", join(known));
}

constexpr int64_t kTrainedOfPhi3 = 4096;  // transformers' default of original_max_position_embeddings

/// Returns the share of each head that is rotated: that of the object, or else of the top level, or 1.
int64_t rotary_width_of(const ModelConfig& config, const std::optional<JsonView>& block, int64_t head_width) {
  const bool inner = block && block->json().contains(kPartial);
  if (!inner && !config.view().json().contains(kPartial)) return head_width;
  const auto share = (inner ? *block : config.view()).at(kPartial);
  const double width = static_cast<double>(head_width) * share.number();
  share.require(share.number() > 0 && share.number() <= 1 && width >= 1 && static_cast<int64_t>(width) % 2 == 0, " is ",
                shown(share.json()), " of heads of ", head_width,
                ", allowed: a share of up to 1 that is an even number of elements");
  return static_cast<int64_t>(width);
}

/// Returns the original length, which transformers reads at the top level alone.
int64_t trained_length_of_phi3(const ModelConfig& config, const std::optional<JsonView>& block) {
  const bool outer = config.view().json().contains(kTrained);
  const int64_t length = outer ? config.view().at(kTrained).integer(1, kMostPositions) : kTrainedOfPhi3;
  if (block && block->json().contains(kTrained))
    block->at(kTrained).require(block->at(kTrained).integer(1, kMostPositions) == length, " is ",
                                shown(block->at(kTrained).json()), ", allowed: ", length, ", as at the top level");
  return length;
}

std::vector<double> rope_factors(const JsonView& block, std::string_view key, int64_t width) {
  std::vector<double> factors;
  const auto list = block.at(key);
  for (const auto& item : list.items()) {
    item.require(item.number() > 0 && std::isfinite(item.number()), " is ", shown(item.json()), ", allowed: above 0");
    factors.push_back(item.number());
  }
  list.require(static_cast<int64_t>(factors.size()) == width / 2, " has ", factors.size(), " entries, expected ",
               width / 2);
  return factors;
}

/// Returns the factor of cosines and sines: the given one, or that of the paper.
double long_attention(const JsonView& block, double ratio, int64_t trained_length) {
  const auto positive = [&](std::string_view key) {
    const auto value = block.at(key);
    value.require(value.number() > 0 && std::isfinite(value.number()), " is ", shown(value.json()),
                  ", allowed: above 0");
    return value.number();
  };
  if (block.has("attention_factor")) return positive("attention_factor");
  const double factor = block.has("factor") ? positive("factor") : ratio;
  if (factor <= 1) return 1;
  block.require(trained_length > 1, " is of type longrope with a ", kTrained, " of 1, allowed: 2 or more");
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(trained_length)));
}

/// Returns whether the object is of type longrope.
bool is_long(const JsonView& block) {
  const std::string_view key = block.json().contains("rope_type") ? "rope_type" : "type";
  if (!block.json().contains(key)) return false;
  const auto& name = block.at(key).string();
  block.at(key).require(name == "default" || name == "longrope" || name == "su" || name == "yarn", " is ",
                        shown(block.at(key).json()), ", supported: default, longrope");
  return name != "default";
}

constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";

/// Returns the object of one kind of layers in rope_parameters.
std::optional<JsonView> block_of_kind(const ModelConfig& config, std::string_view kind) {
  const auto parameters = rope_block(config, kParameters);
  if (!parameters) return std::nullopt;
  for (const auto& member : parameters->members())
    member.require(member.key() == kFull || member.key() == kSliding, " is no kind of layers, known: ", kFull, ", ",
                   kSliding);
  const auto block = parameters->find(kind);
  if (block) block->object();
  return block && block->size() > 0 ? block : std::nullopt;
}

/// Returns rope_scaling, which an older config.json has in the place of rope_parameters.
std::optional<JsonView> older_block(const ModelConfig& config) {
  const auto scaling = rope_block(config, kScaling);
  if (!scaling) return std::nullopt;
  EK_CHECK(!rope_block(config, kParameters), kCheckpoint, config.origin(), " has ", kScaling, " and ", kParameters,
           ", allowed: one of them");
  scaling->require(scaling->json().contains("rope_type"), " is ", shown(scaling->json()),
                   ", which versions of transformers read differently, allowed: with rope_type");
  return scaling;
}

/// Reads the positions of one kind. \param theta_key  where the top level has theta
nn::RopeSpec rope_of_kind(const ModelConfig& config, const std::optional<JsonView>& block, const RopeSizes& sizes,
                          std::string_view theta_key) {
  const bool outer = config.view().json().contains(theta_key) && !(block && block->json().contains(kTheta));
  const double theta = outer ? theta_at(config.view(), theta_key) : sizes.theta;
  nn::RopeSpec rope{.theta = block && block->json().contains(kTheta) ? theta_at(*block) : theta};
  if (!block) return rope;
  const auto& type = type_of(*block);
  require_known_keys(*block, type);
  require_whole_heads(*block);
  type.read({*block, config, sizes, /*has_outer_length=*/false}, rope);
  return rope;
}

}  // namespace

LongPositions read_long_positions(const ModelConfig& config, const RopeSizes& sizes) {
  const auto block = rope_block(config);
  const bool scaled = block && is_long(*block);
  const RopeType known{"longrope", {kTrained, "short_factor", "long_factor", "factor", "attention_factor"}, nullptr};
  if (block) require_known_keys(*block, scaled ? known : rope_types().front());
  LongPositions read{.rope = {.theta = read_theta(config, block, sizes.theta)},
                     .rotary_width = rotary_width_of(config, block, sizes.head_width),
                     .longest = sizes.max_positions};
  if (!scaled) return read;
  const int64_t trained = trained_length_of_phi3(config, block);
  const auto ratio = static_cast<double>(sizes.max_positions) / static_cast<double>(trained);
  rope_factors(*block, "long_factor", read.rotary_width);
  read.rope.scaling = nn::LongRope{rope_factors(*block, "short_factor", read.rotary_width)};
  read.rope.attention_factor = long_attention(*block, ratio, trained);
  read.longest = std::min(trained, sizes.max_positions);
  return read;
}

RopesByKind read_ropes_by_kind(const ModelConfig& config, const RopeSizes& sizes, double sliding_theta) {
  require_whole_heads(config.view());
  const auto older = older_block(config);
  auto of_sliding = sizes;
  of_sliding.theta = sliding_theta;
  return {.full = rope_of_kind(config, older ? older : block_of_kind(config, kFull), sizes, kTheta),
          .sliding = rope_of_kind(config, block_of_kind(config, kSliding), of_sliding, "rope_local_base_freq")};
}

nn::RopeSpec read_rope(const ModelConfig& config, const RopeSizes& sizes) {
  require_whole_heads(config.view());
  const auto block = rope_block(config);
  const RopeType* type = block ? &type_of(*block) : nullptr;  // first, so that an error names an unsupported type
  if (block) require_known_keys(*block, *type);
  nn::RopeSpec rope{.theta = read_theta(config, block, sizes.theta)};
  if (!block) return rope;
  require_whole_heads(*block);
  type->read({*block, config, sizes}, rope);
  return rope;
}

}  // namespace evenkeel::models
