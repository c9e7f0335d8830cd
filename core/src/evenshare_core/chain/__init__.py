"""Tamper-evident logs: records, Merkle trees over them, and signed heads.

Source: RFC 6962 and RFC 9162 (trees and proofs), C2SP's tlog-checkpoint and signed-note (heads),
docs/adr/0196-a-transparency-log.md.
"""
