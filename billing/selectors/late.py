"""The operator's payments to lenders for late rounds (docs/money.md).

The ledger has one operator's entry per hour and borrower. Here that entry is split: the operator's
part of each line goes to the line's shares in proportion, by largest remainder. Ties are resolved
by tenant id, with the operator last. So no part exceeds its share, and the parts sum to the
operator's part of the line. `evenshare_core.verification.statement` computes the same. Read-only.
"""

# CTEs: `late_share` is the operator's part of each share of an account, `late_hour` the sum per
# transfer that settles them. Parameters: account, since_hour, until_hour.
LATE_SHARES = """
    late_exact AS (
        SELECT share.id, share.line_id, share.account_id, account.tenant_id AS lender, share.hour,
               line.pool_id, line.tenant_id AS borrower, line.borne * 1000000 AS borne,
               line.borne * share.amount * 1000000000000 AS due,
               (line.amount + line.borne) * 1000000 AS whole
        FROM billing_usageshare mine
        JOIN billing_usageline line ON line.id = mine.line_id AND line.borne > 0
        JOIN billing_usageshare share ON share.line_id = line.id
        JOIN billing_account account ON account.id = share.account_id
        WHERE mine.account_id = %(account)s
          AND mine.hour >= %(since_hour)s AND mine.hour < %(until_hour)s
    ), late_split AS (
        SELECT *, div(due, whole) AS part,
               borne - sum(div(due, whole)) OVER (PARTITION BY line_id) AS left_over,
               row_number() OVER (PARTITION BY line_id ORDER BY mod(due, whole) DESC, lender)
                   AS place
        FROM late_exact
    ), late_share AS (
        SELECT id, pool_id, borrower, hour,
               ((part + CASE WHEN place <= left_over THEN 1 ELSE 0 END) / 1000000)::numeric(20,6)
                   AS borne
        FROM late_split WHERE account_id = %(account)s
    ), late_hour AS (
        SELECT pool_id, borrower, hour, sum(borne) AS borne
        FROM late_share GROUP BY pool_id, borrower, hour
    )
"""
