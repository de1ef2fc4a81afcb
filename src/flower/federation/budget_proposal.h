/// \file  Chooses the budget of a node by measuring its machine (`evenkeel node --budget auto`).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fed/run/experiment.h"

namespace evenkeel::flower {

/// Number of experts per token that a node proposes.
struct TopKProposal {
  int64_t top_k = 0;
  bool in_time = false;  ///< false: this machine is in time with none, and `top_k` is the smallest
};

/// Returns the largest K with which `tokens` tokens are trained within `seconds`, otherwise the smallest.
/// \param top_ks  in rising order \param speeds  tokens per second at each of them
TopKProposal proposed_top_k(std::span<const int64_t> top_ks, std::span<const double> speeds, int64_t tokens,
                            double seconds);

/// Returns what the node's log says of a proposal. \param budget  that of the proposed K
std::string proposal_text(const TopKProposal& proposal, int64_t tokens, double seconds, double budget);

/// Gives the client the largest budget at which this machine finishes a round within `seconds`, or within half of
/// clients.deadline if that is less. If it never does, the client gets the smallest measured budget. Each K is measured
/// for two seconds of training.
/// \param seconds  most seconds of a round's training
/// \throws kConfig when budgets of this method or model are not numbers of experts
void propose_budget(fed::Experiment& e, int64_t client, double seconds);

}  // namespace evenkeel::flower
