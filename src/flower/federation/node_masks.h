/// \file  A node's part in the masked rounds of a run ([secure_aggregation]): it answers the messages of the phases
/// (flower/federation/mask_messages.h), masks the node's uploads, and keeps what it must not forget on disk. It refuses
/// by the rules of secure/node_round.h, and refuses terms that differ from the run's config.
///
/// Files: secure/ in the node's memory folder (secure/node_store.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fed/config/run_config.h"
#include "fed/exchange/upload_masks.h"
#include "flower/federation/agreement.h"
#include "flower/federation/client_options.h"
#include "flower/federation/envelope.h"
#include "flower/federation/identities.h"
#include "flower/federation/node_noise.h"
#include "secure/node_round.h"
#include "secure/node_store.h"

namespace evenkeel::flower {

/// Checks before a node joins that its owner's options and the run's config go together. \throws kConfig for a masked
/// run without a key, for one that sums reports (secure_aggregation.reports) where the node's rows are private, and for
/// a run without masks where the owner requires them
void require_masks_as_agreed(const NodeClientOptions& options, const fed::RunConfig& config);

/// The masked rounds of one run. Threads: one. \throws kData from all functions, unless stated otherwise, naming the
/// rule that the server's message breaks
class NodeMasks : public fed::UploadMasks {
 public:
  /// Goes on with a stored attempt of the run. \throws kConfig, kData, kIo for a key or a file of peers that cannot be
  /// read; kCheckpoint for damaged files
  /// \param noise  the node's account where it adds noise to its uploads; null: it adds none
  NodeMasks(const NodeClientOptions& options, const Offer& offer, fed::RunConfig config,
            std::shared_ptr<const NodeNoise> noise = nullptr);

  /// Answers a message of a phase. What it promises is on disk before it returns.
  Envelope answer(const Envelope& envelope);
  /// Checks that a training task asks for the upload that was agreed on in the phases before.
  void admit(const fed::Task& task) const;
  crypto::Secret rounding_key(const fed::Task& task) override;
  void add(const fed::Task& task, const secure::RingVector& summand) override;
  /// Training results are kept in memory only, until the node helps with the sum: a restarted node trains again.
  std::shared_ptr<const fed::TrainedRound> kept(const fed::Task& task) const override;
  void keep(const fed::Task& task, std::shared_ptr<const fed::TrainedRound> trained) override;
  /// Wipes the secrets of an attempt at a round that is committed. \param rounds  committed rounds
  void committed(int64_t rounds);
  /// Wipes the secrets of any attempt: the run is over.
  void wipe();
  /// Describes the masking for the operator.
  std::string summary() const;

 private:
  OrderedJson keys(const Envelope& envelope);
  OrderedJson take_roster(const Envelope& envelope);
  OrderedJson take_shares(const Envelope& envelope);
  OrderedJson sign_survivors(const Envelope& envelope);
  OrderedJson unmask(const Envelope& envelope);
  void check_terms(const secure::RoundContext& context) const;
  /// Returns the attempt that a message names. \throws kData when this node has no secrets of it
  secure::NodeRound& attempt(const std::string& name);
  void save() { store_.save(round_->attempt()); }

  fed::RunConfig config_;
  int64_t client_;
  Key key_;
  secure::NodeRules rules_;
  secure::NodeStore store_;
  std::shared_ptr<const NodeNoise> noise_;
  std::optional<secure::NodeRound> round_{};
  std::string trained_for_{};  // what the kept training depends on
  std::shared_ptr<const fed::TrainedRound> trained_{};
};

}  // namespace evenkeel::flower
