// Runs contract/family_contract_test.cpp for the families of other_families.h.
#include <gtest/gtest.h>

#include "other_families.h"

int main(int argc, char** argv) {
  evenkeel::add_other_families();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
