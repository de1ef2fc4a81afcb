/// \file  What a family file offers to the registry. A new family is one file and one row.
#pragma once

#include <memory>

#include "models/causal_lm.h"
#include "models/checkpoint.h"

namespace evenkeel {

/// Builds a model of `config`'s shape from `source`.
using MakeModel = std::unique_ptr<CausalLm> (*)(const ModelConfig& config, TensorSource& source);

std::unique_ptr<CausalLm> make_olmoe(const ModelConfig& config, TensorSource& source);

/// What stands beside the weights of one forward, looked up by site name.
struct FactorsBySite {
  const AdapterState* adapters;
  const AdapterState* base_change;

  SiteFactors at(const std::string& prefix, std::string_view name) const {
    const std::string site = concat(prefix, name);
    return {find(adapters, site), find(base_change, site)};
  }

 private:
  static const LoraFactors* find(const AdapterState* state, const std::string& site) {
    if (!state) return nullptr;
    const auto found = state->find(site);
    return found == state->end() ? nullptr : &found->second;
  }
};

}  // namespace evenkeel
