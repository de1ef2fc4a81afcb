#include "methods/ub_smoe_no_effect.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string_view>

namespace evenkeel::methods::ubsmoe {
namespace {

/// Returns the values of keys that differ from the defaults, as TOML, by key.
std::map<std::string, std::string> changed_values(const Options& options) {
  const auto lines_of = [](const Options& values) {
    std::map<std::string, std::string> lines;
    std::string text = config::write(values);
    for (size_t end = 0; !text.empty(); text.erase(0, end)) {
      end = std::min(text.find('\n'), text.size() - 1) + 1;
      const auto line = text.substr(0, text.find('\n'));
      if (const auto sign = line.find(" = "); sign != line.npos) lines[line.substr(0, sign)] = line.substr(sign + 3);
    }
    return lines;
  };
  auto changed = lines_of(options);
  for (const auto& [key, value] : lines_of({}))
    if (changed.at(key) == value) changed.erase(key);
  return changed;
}

class Findings {
 public:
  explicit Findings(const Options& options) : changed_(changed_values(options)) {}

  /// Adds the keys with changed values. A key is added once, with the first reason.
  void add(std::string_view reason, std::initializer_list<const char*> keys) {
    for (const auto* key : keys)
      if (const auto found = changed_.extract(key); !found.empty())
        lines.push_back(concat("method.ub-smoe.", key, " is ", found.mapped(), ", but has no effect: ", reason));
  }

  std::vector<std::string> lines;

 private:
  std::map<std::string, std::string> changed_;
};

/// Returns why phi stays 0 on the server; empty if it can change.
std::string why_phi_stays_zero(const Options& options) {
  if (options.phi_train == PhiTrain::kLocalFedavg) return {};
  const auto forgotten =
      options.phi_train == PhiTrain::kOff ? "phi_train is off" : "clients discard the phi they train";
  if (options.phi_update == PhiUpdate::kOff) return concat("phi_update is off and ", forgotten);
  if (options.phi_momentum == 1) return concat("phi_momentum is 1 and ", forgotten);
  if (options.phi_scale != PhiScale::kNone && options.phi_range[0] == 0 && options.phi_range[1] == 0)
    return concat("phi_range is [0, 0] and ", forgotten);
  return {};
}

void add_phi(const Options& options, Findings& found) {
  if (!options.modulates())
    return found.add("num_candidates is 0, so phi is added to no expert",
                     {"gate_scores", "phi_update", "phi_momentum", "phi_range", "phi_scale", "util_frequency",
                      "util_eps", "phi_train", "phi_penalty", "lambda_phi", "phi_at_eval"});
  if (const auto why = why_phi_stays_zero(options); !why.empty()) {
    found.lines.push_back(concat("method.ub-smoe: the server's phi stays 0 for ever, because ", why,
                                 "; phi_train = \"local_fedavg\" keeps what clients train"));
    found.add("the server's phi is 0", {"phi_at_eval"});
  }
  if (options.phi_update == PhiUpdate::kOff)
    found.add("phi_update is off", {"phi_momentum", "phi_scale", "util_frequency", "util_eps"});
  if (options.phi_range == std::vector{-1.0, 1.0}) found.add("phi_range is [-1, 1]", {"phi_scale"});
  if (options.phi_train == PhiTrain::kOff) {
    found.add("phi_train is off", {"phi_penalty", "lambda_phi"});
    if (options.phi_update == PhiUpdate::kOff) found.add("phi_update and phi_train are off", {"phi_range"});
  }
  if (options.lambda_phi == 0) found.add("lambda_phi is 0", {"phi_penalty"});
  if (options.phi_update == PhiUpdate::kOff && options.phi_penalty == PhiPenalty::kL2)
    found.add("phi_update is off and phi_penalty is l2", {"phi_range"});
}

bool phi_uses_kbar(const Options& options) {
  return options.modulates() && options.phi_update == PhiUpdate::kUtilization &&
         options.util_frequency == UtilFrequency::kPerToken;
}

bool rho_uses_kbar(const Options& options) {
  return options.pg && options.rho_ref == RhoRef::kKbar && options.rho_fn != RhoFn::kNone;
}

}  // namespace

std::vector<std::string> values_without_effect(const Options& options) {
  Findings found(options);
  add_phi(options, found);
  if (!options.pg)
    found.add("pg is false",
              {"pg_source", "pg_activity", "pg_apply", "pg_clip_mode", "pg_clip", "pg_gamma", "rho_ref", "rho_fn"});
  if (options.pg_clip_mode == PgClipMode::kOff) found.add("pg_clip_mode is off", {"pg_clip"});
  if (options.rho_fn == RhoFn::kNone) found.add("rho_fn is none", {"rho_ref"});
  if (!phi_uses_kbar(options) && !rho_uses_kbar(options)) found.add("neither phi nor rho uses Kbar", {"kbar_over"});
  return std::move(found.lines);
}

}  // namespace evenkeel::methods::ubsmoe
