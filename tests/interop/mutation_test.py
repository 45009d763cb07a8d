"""The conformance tests find faults: each of these faults in the host device makes a test fail.

CGTREE_MUTANT makes tests/support/devices.cc insert the fault; tests/support/mutant_device.cc
implements it. This file has the test that must fail for each.
"""

import os
import subprocess
import unittest

CAPTURE = "capture_conformance_test"
DEVICE = "device_conformance_test"
GRAPH = "graph_conformance_test"
MATRIX = "capture_matrix_test"

# Fault: program, test. The table's tests have the names of their rows.
MUTANTS = {
    # Error numbers that differ from CUDA's.
    "InvalidCaptureTakesWork": (CAPTURE, "RefusesWorkOnAnInvalidatedCapture"),
    "MergeIsIsolation": (CAPTURE, "AMergeInvalidatesBothCaptures"),
    "UnmatchedIsIllegalState": (MATRIX, "EndOnFork_"),
    "UnjoinedIsInvalidated": (CAPTURE, "RefusesWorkThatIsNotJoined"),
    "WrongThreadIsIllegalState": (CAPTURE, "EndingOnTheWrongThreadEndsTheCapture"),
    "ImplicitIsUnsupported": (CAPTURE, "ABlockingForkForbidsTheLegacyStream"),
    "CapturedEventIsNotReady": (MATRIX, "QueryCapturedEvent_"),
    "EventOfAnEndedCaptureIsComplete": (CAPTURE, "AnEventStaysCapturedUntilItIsRecordedAgain"),
    "FreesWhatItDidNotAllocate": (DEVICE, "RefusesToFreeWhatItDidNotAllocate"),
    "HostFunctionsMayCallTheDevice": (DEVICE, "PermitsNoCallsInsideAHostFunction"),
    "OutOfMemoryIsInvalidValue": (DEVICE, "AnswersOutOfMemoryWithANumber"),
    "CopiesToNull": (DEVICE, "RefusesToCopyToNull"),
    # Captures that survive forbidden calls, or are invalidated by permitted ones.
    "WaitsForACapturingStream": (MATRIX, "SynchronizeOrigin_"),
    "CaptureSurvivesAWait": (MATRIX, "SynchronizeOrigin_"),
    "AllocatesDuringACapture": (MATRIX, "Alloc_"),
    "CaptureSurvivesAnAllocation": (MATRIX, "Alloc_"),
    "RelaxedIsGlobal": (MATRIX, "AllocRelaxed_"),
    "LegacyWorkIgnoresBlockingCaptures": (MATRIX, "LaunchOnLegacy_"),
    "OutsideEventsMayBeWaitedFor": (MATRIX, "WaitForOutside_"),
    "LaunchesIntoACapture": (MATRIX, "LaunchExec_"),
    "UnjoinedWorkIsAccepted": (CAPTURE, "RefusesWorkThatIsNotJoined"),
    "WrongThreadKeepsTheCapture": (CAPTURE, "EndingOnTheWrongThreadEndsTheCapture"),
    "InvalidationIsNotSeen": (MATRIX, "QueryOrigin_"),
    "IdsAreNotUnique": (CAPTURE, "GivesEachCaptureItsOwnId"),
    # Work that is not captured, or is captured wrongly.
    "MemsetRunsDuringCapture": (GRAPH, "NamesTheTypesOfItsNodes"),
    "HostFunctionIsNotCaptured": (GRAPH, "CallsAHostFunctionAtEachLaunchWithLiveData"),
    "ArgumentsByReference": (GRAPH, "FreezesKernelArgumentsByValue"),
    "PageableSourceIsFrozen": (GRAPH, "ReadsPageableMemoryAtLaunch"),
    "CapturedWaitIsDropped": (GRAPH, "WaitsForAnAncestorOnceMore"),
    # Order.
    "WaitIsDropped": (DEVICE, "AnEventOrdersTheWorkOfTwoStreams"),
    "SynchronizeDoesNotWait": (DEVICE, "SynchronizingAStreamWaitsForItsWork"),
    "ExecRunsTwiceAtOnce": (GRAPH, "LaunchesOfOneExecOnTwoStreamsDoNotMix"),
    # Executable graphs and their nodes.
    "PatchesEveryExec": (GRAPH, "PatchesAKernelNodeOfOneExecOnly"),
    "PatchIsLost": (GRAPH, "PatchesAKernelNodeOfOneExecOnly"),
    "PatchingLaunches": (GRAPH, "ALaunchInTheQueueKeepsItsArguments"),
    "EdgeIsNotListed": (GRAPH, "ListsEachEdgeOnce"),
    "CopyIsCalledMemset": (GRAPH, "NamesTheTypesOfItsNodes"),
    "ZeroBytesAreRefused": (GRAPH, "MakesNoNodeForZeroBytes"),
    # The last error.
    "LastErrorIsLost": (DEVICE, "KeepsTheLastErrorUntilItIsTaken"),
    "LastErrorStays": (DEVICE, "KeepsTheLastErrorUntilItIsTaken"),
}


def run(mutant, program, test):
    """Returns the program's exit status and output, for the test on every host device."""
    # A fixed order of the random device in which each fault shows; another order may hide one.
    name = f"*_{test}*" if program == MATRIX else f"*.{test}/host*"
    return subprocess.run([f"tests/interop/{program}", f"--gtest_filter={name}"], text=True,
                          capture_output=True, check=False,
                          env=os.environ | {"CGTREE_MUTANT": mutant, "CGTREE_SEED": "1"})


class MutationTest(unittest.TestCase):
    def test_each_fault_is_found(self):
        for mutant, (program, test) in MUTANTS.items():
            with self.subTest(mutant):
                result = run(mutant, program, test)
                self.assertIn("[  FAILED  ]", result.stdout, result.stderr)

    def test_without_a_fault_the_same_tests_pass(self):
        for program, test in sorted(set(MUTANTS.values())):
            with self.subTest(f"{program} {test}"):
                result = run("None", program, test)
                self.assertEqual(result.returncode, 0, result.stdout)
                self.assertIn("[       OK ]", result.stdout)

    def test_each_fault_of_the_device_is_listed_here(self):
        result = run("", DEVICE, "FreesNull")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(set(result.stderr.split("known: ")[1].split()), set(MUTANTS) | {"None"})


if __name__ == "__main__":
    unittest.main()
